// cache_worker.cpp -- one process of the many-process tests: does one task on a cache directory, exit code 0 if all
// was right, 1 with a line on standard error if not, 77 if this machine does not allow the task.
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "cache/disk_store.hpp"
#include "cache/kernel_cache.hpp"
#include "tests/cache/sample_entries.hpp"

namespace flashspan::cache {
namespace {

constexpr int right = 0;
constexpr int wrong = 1;
constexpr int not_possible_here = 77;
constexpr std::size_t memory_limit = std::size_t{64} << 20;

void print_to_standard_error(LogLevel, std::string_view line) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

int report(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  return wrong;
}

bool temporary_file_left(const std::filesystem::path& directory) {
  for (const auto& item : std::filesystem::recursive_directory_iterator(directory)) {
    if (item.path().filename().string().starts_with(".tmp-")) return true;
  }
  return false;
}

/// Waits until the parent closes our standard input, so that all workers start together.
void wait_for_start() {
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

/// Gets every one of `count` entries in an order of its own, `rounds` times, with a fresh memory store each time.
/// Prints how many it had to build.
int race(const std::filesystem::path& directory, std::uint64_t seed, int count, int rounds) {
  wait_for_start();
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  int built = 0;
  for (int round = 0; round < rounds; ++round) {
    KernelCache cache(DiskStore(directory, print_to_standard_error), memory_limit, print_to_standard_error);
    std::shuffle(numbers.begin(), numbers.end(), random);
    for (const std::uint64_t number : numbers) {
      const auto found = cache.get(sample_key(number), [number]() -> Result<Entry> { return sample_entry(number); });
      if (!found) return report(found.error().message());
      if (*found->entry != sample_entry(number)) return report("wrong entry for " + std::to_string(number));
      if (found->outcome == Outcome::built) ++built;
    }
  }
  std::printf("%d\n", built);
  return right;
}

/// Publishes entries without end; meant to be killed.
int write_forever(const std::filesystem::path& directory, std::uint64_t seed) {
  DiskStore store(directory, print_to_standard_error);
  std::mt19937_64 random(seed);
  while (true) {
    const std::uint64_t number = random() % 32;
    if (const auto written = store.write(sample_key(number), sample_entry(number)); !written) {
      return report(written.error().message());
    }
  }
}

/// Reads without end what others write and prune; what it gets must be right. Ends when standard input closes.
int read_until_told(const std::filesystem::path& directory, std::uint64_t seed) {
  DiskStore store(directory, print_to_standard_error);
  std::mt19937_64 random(seed);
  std::vector<Entry> expected;
  for (std::uint64_t number = 0; number < 32; ++number) expected.push_back(sample_entry(number));
  fd_set inputs;
  timeval no_wait{};
  do {
    for (int i = 0; i < 64; ++i) {
      const std::uint64_t number = random() % 32;
      const auto entry = store.read(sample_key(number));
      if (entry && *entry != expected[number]) return report("wrong entry for " + std::to_string(number));
    }
    FD_ZERO(&inputs);
    FD_SET(STDIN_FILENO, &inputs);
  } while (::select(STDIN_FILENO + 1, &inputs, nullptr, nullptr, &no_wait) == 0);
  return right;
}

/// Fills `directory` until a write fails: that write must leave no trace, and what was written must stay.
int write_until_full(const std::filesystem::path& directory, std::size_t artifact_bytes) {
  DiskStore store(directory, print_to_standard_error);
  std::uint64_t number = 0;
  Result<void> written;
  while ((written = store.write(sample_key(number), sample_entry(number, artifact_bytes)))) {
    if (++number == 10000) return report("the limit was never reached");
  }
  if (written.error().code != ErrorCode::io_error) return report("not an io_error: " + written.error().message());
  if (temporary_file_left(directory)) return report("a temporary file is left");
  if (store.read(sample_key(number))) return report("an entry that failed to write is there");
  for (std::uint64_t earlier = 0; earlier < number; ++earlier) {
    if (store.read(sample_key(earlier)) != sample_entry(earlier, artifact_bytes)) return report("an entry is lost");
  }
  if (store.write(sample_key(number), sample_entry(number, artifact_bytes))) return report("full, and yet it fits?");
  // A full disk is not a read-only one: when there is space again, writes go on.
  if (number > 0 && store.prune({0, std::nullopt}).size() != number) return report("prune did not make room");
  if (number > 0 && !store.write(sample_key(0), sample_entry(0, artifact_bytes))) return report("latched by ENOSPC");
  // And the cache above carries on, disk or no disk.
  KernelCache cache(std::move(store), memory_limit, print_to_standard_error);
  const auto found = cache.get(sample_key(9999), []() -> Result<Entry> { return sample_entry(9999, 1 << 20); });
  return found && *found->entry == sample_entry(9999, 1 << 20) ? right : report("the cache failed with the disk");
}

/// A file system of our own that no one else sees, of `options`, mounted on `directory`.
bool mount_private(const std::filesystem::path& directory, const char* options) {
  return ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", directory.c_str(), "tmpfs", 0, options) == 0;
}

int full_disk(const std::filesystem::path& directory) {
  if (!mount_private(directory, "size=256k")) return not_possible_here;
  return write_until_full(directory, 20000);
}

int limited_file_size(const std::filesystem::path& directory) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{16384, 16384};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return not_possible_here;
  return write_until_full(directory, 20000);
}

/// A store that may not write says so once and serves what is there.
int use_without_writing(const std::filesystem::path& directory) {
  int warnings = 0;
  DiskStore store(directory, [&warnings](LogLevel, std::string_view) { ++warnings; });
  if (store.read(sample_key(1)) != sample_entry(1)) return report("cannot read what is there");
  const auto first = store.write(sample_key(2), sample_entry(2));
  if (first || first.error().code != ErrorCode::io_error) return report("a write should have failed");
  const auto second = store.write(sample_key(2), sample_entry(2));
  if (second || second.error().got.find("not writable") == std::string::npos) return report("not latched");
  if (warnings != 0) return report("warned about a plain read");
  KernelCache cache(std::move(store), memory_limit, print_to_standard_error);
  const auto found = cache.get(sample_key(3), []() -> Result<Entry> { return sample_entry(3); });
  return found && *found->entry == sample_entry(3) ? right : report("the cache failed with the disk");
}

/// The directory belongs to someone else and lets us only read.
int foreign_directory(const std::filesystem::path& directory) {
  constexpr uid_t nobody = 65534;
  if (::geteuid() == 0 && ::setresuid(nobody, nobody, nobody) != 0) return not_possible_here;
  if (::access(directory.c_str(), W_OK) == 0) return not_possible_here;
  return use_without_writing(directory);
}

int read_only_file_system(const std::filesystem::path& directory) {
  if (!mount_private(directory, "size=1m")) return not_possible_here;
  if (!DiskStore(directory, {}).write(sample_key(1), sample_entry(1))) return report("cannot prepare");
  if (::mount(nullptr, directory.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return not_possible_here;
  return use_without_writing(directory);
}

/// Removes what was not used for an hour by this process's clock, until standard input ends.
int prune_until_told(const std::filesystem::path& directory) {
  DiskStore store(directory, print_to_standard_error);
  pollfd input{STDIN_FILENO, POLLIN, 0};
  do {
    std::ignore = store.prune({std::nullopt, std::time(nullptr) - 3600});
  } while (::poll(&input, 1, 1) == 0);
  return right;
}

/// Has the turn of key 1 until standard input ends; prints a line as soon as it has it. Meant to be killed.
int hold_turn(const std::filesystem::path& directory) {
  const auto turn = DiskStore(directory, print_to_standard_error).take_turn(sample_key(1));
  if (turn == nullptr || turn->wait() != BuildTurn::Wait::over) return report("no turn");
  std::printf("has it\n");
  std::fflush(stdout);
  wait_for_start();
  return right;
}

/// For runs under fail_file_calls: every entry must come out right although the file system fails now and then.
int endure_failures(const std::filesystem::path& directory) {
  for (int round = 0; round < 50; ++round) {
    KernelCache cache(DiskStore(directory, {}), memory_limit, {});
    for (std::uint64_t number = 0; number < 8; ++number) {
      const auto found = cache.get(sample_key(number), [number]() -> Result<Entry> { return sample_entry(number); });
      if (!found) return report(found.error().message());
      if (*found->entry != sample_entry(number)) return report("wrong entry for " + std::to_string(number));
    }
  }
  return temporary_file_left(directory) ? report("a temporary file is left") : right;
}

int run(const std::vector<std::string>& arguments) {
  const std::string& task = arguments.at(0);
  const std::filesystem::path directory = arguments.at(1);
  const std::uint64_t seed = arguments.size() > 2 ? std::stoull(arguments[2]) : 0;
  if (task == "race") return race(directory, seed, 8, 50);
  if (task == "write") return write_forever(directory, seed);
  if (task == "read") return read_until_told(directory, seed);
  if (task == "prune") return prune_until_told(directory);
  if (task == "hold-turn") return hold_turn(directory);
  if (task == "full-disk") return full_disk(directory);
  if (task == "limited-file-size") return limited_file_size(directory);
  if (task == "foreign-directory") return foreign_directory(directory);
  if (task == "read-only-file-system") return read_only_file_system(directory);
  if (task == "endure-failures") return endure_failures(directory);
  return report("no such task: " + task);
}

}  // namespace
}  // namespace flashspan::cache

int main(int count, char** arguments) { return flashspan::cache::run({arguments + 1, arguments + count}); }
