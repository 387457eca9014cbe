// Many processes on one directory, killed writers and failing file systems: nothing wrong is ever served.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <random>
#include <set>
#include <string_view>
#include <thread>
#include <tuple>

#include "cache/disk_store.hpp"
#include "tests/cache/sample_entries.hpp"
#include "tests/cache/temporary_directory.hpp"
#include "tests/cache/worker_process.hpp"

namespace flashspan::cache {
namespace {

namespace fs = std::filesystem;

int count_temporary_files(const fs::path& directory) {
  int count = 0;
  for (const auto& item : fs::recursive_directory_iterator(directory)) {
    if (item.path().filename().string().starts_with(".tmp-")) ++count;
  }
  return count;
}

/// Field case F073: `count` processes start together on one cold directory, readers among them.
class OneColdDirectory : public testing::TestWithParam<unsigned long> {};
INSTANTIATE_TEST_SUITE_P(Processes, OneColdDirectory, testing::Values(8, 16, 32));

TEST_P(OneColdDirectory, AllProcessesGetTheRightEntries) {
  const TemporaryDirectory directory;
  std::vector<WorkerProcess> workers;
  workers.reserve(GetParam());
  std::vector<WorkerProcess> readers;
  readers.reserve(2);
  for (unsigned long seed = 0; seed < 2; ++seed) readers.emplace_back("read", directory.path() / "cache", seed);
  for (unsigned long seed = 0; seed < GetParam(); ++seed) {
    workers.emplace_back("race", directory.path() / "cache", seed);
  }
  for (WorkerProcess& worker : workers) worker.close_input();
  int built = 0;
  for (WorkerProcess& worker : workers) {
    EXPECT_EQ(worker.wait(), 0);
    built += std::stoi("0" + worker.output());
  }
  for (WorkerProcess& reader : readers) EXPECT_EQ(reader.wait(), 0);
  EXPECT_EQ(built, 8);
  EXPECT_EQ(count_temporary_files(directory.path()), 0);
  DiskStore store(directory.path() / "cache", {});
  EXPECT_EQ(store.list().size(), 8U);
  for (std::uint64_t number = 0; number < 8; ++number) {
    EXPECT_EQ(store.read(sample_key(number)), sample_entry(number));
  }
}

TEST(Processes, ASecondProcessBuildsNothing) {
  const TemporaryDirectory directory;
  WorkerProcess first("race", directory.path(), 1);
  ASSERT_EQ(first.wait(), 0);
  EXPECT_EQ(first.output(), "8\n");
  WorkerProcess second("race", directory.path(), 2);
  ASSERT_EQ(second.wait(), 0);
  EXPECT_EQ(second.output(), "0\n");
}

TEST(Processes, AKilledWriterLeavesNothingThatIsServed) {
  const TemporaryDirectory directory;
  std::mt19937 random(3);
  std::vector<std::string> warnings;
  DiskStore store(directory.path(), [&warnings](LogLevel, std::string_view line) { warnings.emplace_back(line); });
  std::set<KernelKey> published;
  unsigned long longest_microseconds = 30000;
  for (unsigned long round = 0; round < 40; ++round) {
    WorkerProcess writer("write", directory.path(), round);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % longest_microseconds));
    if (published.empty()) longest_microseconds += 30000;  // a busy machine needs longer to start a process
    writer.kill();
    EXPECT_EQ(writer.wait(), -SIGKILL);
    for (std::uint64_t number = 0; number < 32; ++number) {
      const auto entry = store.read(sample_key(number));
      if (entry) {
        EXPECT_EQ(*entry, sample_entry(number));
        published.insert(sample_key(number));
      } else {
        EXPECT_FALSE(published.contains(sample_key(number))) << "an entry once published is lost";
      }
    }
  }
  EXPECT_FALSE(published.empty());
  EXPECT_TRUE(warnings.empty()) << warnings.front();
  // What the killed ones left is swept once it is old.
  for (const auto& item : fs::recursive_directory_iterator(directory.path())) {
    const timespec times[2] = {{0, 0}, {0, 0}};
    if (item.path().filename().string().starts_with(".tmp-")) {
      ASSERT_EQ(::utimensat(AT_FDCWD, item.path().c_str(), times, 0), 0);
    }
  }
  EXPECT_TRUE(store.prune({}).empty());
  EXPECT_EQ(count_temporary_files(directory.path()), 0);
}

// Field case F073.
TEST(Processes, ReadersLiveWithWritersPrunersAndVanishingDirectories) {
  const TemporaryDirectory directory;
  const fs::path cache = directory.path() / "cache";
  std::vector<WorkerProcess> readers;
  for (unsigned long seed = 0; seed < 2; ++seed) readers.emplace_back("read", cache, seed);
  WorkerProcess writer("write", cache, 7);
  DiskStore store(cache, {});
  for (int round = 0; round < 60; ++round) {
    const std::uint64_t number = static_cast<std::uint64_t>(round) % 32;
    std::ignore = store.write(sample_key(number), sample_entry(number));
    const auto entry = store.read(sample_key(number));
    EXPECT_TRUE(!entry || *entry == sample_entry(number));
    for (const StoredEntry& listed : store.list()) EXPECT_TRUE(listed.valid) << listed.damage;
    std::ignore = store.prune({round % 2 == 0 ? 400000 : 0, std::nullopt});
    std::error_code ignored;
    if (round % 10 == 9) fs::rename(cache, directory.path() / std::to_string(round), ignored);
  }
  for (WorkerProcess& reader : readers) EXPECT_EQ(reader.wait(), 0);
}

/// Runs a task of cache_worker that needs rights or features a machine may lack.
void run_task(const std::string& task, const fs::path& directory, const std::vector<std::string>& environment = {}) {
  WorkerProcess worker(task, directory, 0, environment);
  const int code = worker.wait();
  if (code == not_possible_here) GTEST_SKIP() << "not possible here: " << task;
  EXPECT_EQ(code, 0);
}

// Field case F073, as are the others of this suite.
TEST(FailingFileSystems, AFullDiskLeavesNoTemporaryFileAndLosesNothing) {
  const TemporaryDirectory directory;
  run_task("full-disk", directory.path());
}

TEST(FailingFileSystems, AWriteCutShortLeavesNoTemporaryFile) {
  const TemporaryDirectory directory;
  run_task("limited-file-size", directory.path());
}

TEST(FailingFileSystems, AReadOnlyFileSystemIsServedFrom) {
  const TemporaryDirectory directory;
  run_task("read-only-file-system", directory.path());
}

TEST(FailingFileSystems, ADirectoryOfSomeoneElseIsServedFrom) {
  const TemporaryDirectory directory;
  fs::create_directories(directory.path() / "cache");
  fs::permissions(directory.path() / "cache", fs::perms(0755));
  ASSERT_TRUE(DiskStore(directory.path() / "cache", {}).write(sample_key(1), sample_entry(1)));
  if (::geteuid() != 0) fs::permissions(directory.path() / "cache", fs::perms(0555));
  run_task("foreign-directory", directory.path() / "cache");
}

TEST(FailingFileSystems, AClockThatJumpsCostsNothingAmongPrunersWhoseClocksDoNot) {
  const TemporaryDirectory directory;
  const fs::path cache = directory.path() / "cache";
  WorkerProcess worker("endure-failures", cache, 0,
                       {std::string("LD_PRELOAD=") + FLASHSPAN_JUMP_CLOCK, "ASAN_OPTIONS=verify_asan_link_order=0"});
  DiskStore store(cache, {});
  std::size_t pruned = 0;
  for (int round = 0; round < 20; ++round) pruned += store.prune({std::nullopt, std::time(nullptr) - 3600}).size();
  EXPECT_EQ(worker.wait(), 0);
  EXPECT_EQ(pruned, 0U) << "an entry of this hour was taken for an old one";
  for (std::uint64_t number = 0; number < 8; ++number) EXPECT_EQ(store.read(sample_key(number)), sample_entry(number));
}

// By a process that is sure that it is years later, or earlier: what is removed is built anew.
TEST(FailingFileSystems, APruneByAClockThatJumpsLosesNoMoreThanEntries) {
  const TemporaryDirectory directory;
  const fs::path cache = directory.path() / "cache";
  WorkerProcess pruner("prune", cache, 0,
                       {std::string("LD_PRELOAD=") + FLASHSPAN_JUMP_CLOCK, "ASAN_OPTIONS=verify_asan_link_order=0"});
  WorkerProcess worker("endure-failures", cache);
  EXPECT_EQ(worker.wait(), 0);
  EXPECT_EQ(pruner.wait(), 0);
  EXPECT_FALSE(fs::exists(cache / "damaged"));
}

TEST(FailingFileSystems, CallsThatFailNowAndThenCostNothingButTheEntry) {
  for (const char* call : {"open", "rename", "rename-reply", "fsync", "mkostemp", "flock"}) {
    for (const int error : {EBUSY, ESTALE, ENOENT, EIO, ENOSPC, EINTR}) {
      if (error == EINTR && std::string_view(call).starts_with("rename")) continue;  // rename is never interrupted
      const TemporaryDirectory directory;
      run_task("endure-failures", directory.path() / "cache",
               {std::string("LD_PRELOAD=") + FLASHSPAN_FAIL_FILE_CALLS, std::string("FAIL_CALL=") + call,
                "FAIL_ERRNO=" + std::to_string(error), "ASAN_OPTIONS=verify_asan_link_order=0"});
      EXPECT_FALSE(fs::exists(directory.path() / "cache" / "damaged")) << call << " " << std::strerror(error);
    }
  }
}

}  // namespace
}  // namespace flashspan::cache
