// serving_bench.cpp -- how long a kernel takes to come from memory, from disk and from a compile service, and how long
// many compiles take side by side. One part a run, so that a process can be a fresh one; prints one JSON object.
//   flashspan_bench_serving first|hits|prepare --folder CACHE [--device none|cuda] [--kernels N] [--rounds N]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cache/kernel_cache.hpp"
#include "flashspan/mask.hpp"
#include "flashspan/service.hpp"
#include "runtime/api/backends.hpp"
#include "runtime/api/network_plugin.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "runtime/attention/compile_limits.hpp"
#include "runtime/attention/compile_queue.hpp"
#include "runtime/attention/kernel_provider.hpp"
#include "runtime/cuda/cuda_backend.hpp"

namespace {

using namespace flashspan;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Options {
  std::filesystem::path folder;
  bool on_device = false;
  int kernels = 20;
  int rounds = 20;
  int head_dim = 128;
};

[[noreturn]] void give_up(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message().c_str());
  std::exit(3);
}

template <typename T>
T value_of(Result<T> result) {
  if (!result) give_up(result.error());
  return std::move(*result);
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void print_warnings(LogLevel level, std::string_view line) {
  if (level >= LogLevel::warning) std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

/// A kernel that differs from the others in a number of its mask.
struct Kernel {
  Mask mask;
  kernel::KernelSpec spec;
  [[nodiscard]] attention::UserText text() const { return {&mask.state().program.source(), nullptr}; }
};

std::vector<Kernel> make_kernels(const Options& options, const kernel::Target& target) {
  std::vector<Kernel> kernels;
  for (int number = 0; number < options.kernels; ++number) {
    Mask mask = value_of(Mask::parse("(q >= k) & (q - k != " + std::to_string(number) + ")"));
    attention::SpecChoice choice;
    choice.target = target;
    choice.dtype = DType::bf16;
    choice.head_dim_qk = choice.head_dim_v = options.head_dim;
    auto spec = value_of(attention::choose_spec(choice, mask.state(), nullptr));
    kernels.push_back({std::move(mask), std::move(spec)});
  }
  return kernels;
}

/// The GPU, or what compiles for one that need not be there.
std::shared_ptr<backend::Backend> open_backend(const Options& options) {
  if (options.on_device) return value_of(api::open_backend(Device{DeviceKind::cuda, 0}, api::settings()));
  return cuda::make_compile_only_backend(Arch{80, 0}, api::nvrtc_search(api::settings()));
}

constexpr std::size_t memory_bytes = std::size_t{256} << 20;

std::shared_ptr<cache::KernelCache> open_cache(const std::optional<std::filesystem::path>& folder) {
  std::optional<cache::DiskStore> disk;
  if (folder) disk.emplace(*folder, print_warnings);
  return std::make_shared<cache::KernelCache>(std::move(disk), memory_bytes, print_warnings);
}

/// As a process that has just started sees it.
attention::KernelProvider fresh_provider(const std::shared_ptr<backend::Backend>& backend,
                                         const std::shared_ptr<cache::KernelCache>& cache,
                                         std::shared_ptr<attention::RemoteCompiler> service = nullptr) {
  attention::ProviderOptions options;
  options.log = print_warnings;
  options.service = std::move(service);
  return {backend, cache, std::move(options)};
}

/// All steps up to the device, or to a loaded kernel where there is one. Where the kernel came from.
cache::Outcome obtain(attention::KernelProvider& provider, const Kernel& kernel, bool on_device) {
  if (on_device) return value_of(provider.get(kernel.spec, kernel.text())).ready->outcome;
  return value_of(provider.build(kernel.spec, kernel.text())).outcome;
}

Json summary(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double part) {
    return samples[static_cast<std::size_t>(part * static_cast<double>(samples.size() - 1))];
  };
  return {{"median", at(0.5)}, {"p99", at(0.99)}, {"samples", samples.size()}};
}

/// Milliseconds of `rounds` times each kernel from a provider that is fresh in each round, all from `expected`.
Json time_rounds(const Options& options, const std::vector<Kernel>& kernels, cache::Outcome expected,
                 const std::function<attention::KernelProvider()>& open) {
  std::vector<double> samples;
  for (int round = 0; round < options.rounds; ++round) {
    attention::KernelProvider provider = open();
    for (const Kernel& kernel : kernels) {
      const auto start = Clock::now();
      const cache::Outcome outcome = obtain(provider, kernel, options.on_device);
      samples.push_back(milliseconds_since(start));
      if (outcome != expected) {
        give_up({ErrorCode::io_error, "kernel", cache::to_string(outcome), cache::to_string(expected), ""});
      }
    }
  }
  return summary(std::move(samples));
}

/// Nanoseconds of one call, from the time of many.
Json time_calls(int rounds, const std::function<void()>& call) {
  constexpr int calls = 1000;
  std::vector<double> samples;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    for (int number = 0; number < calls; ++number) call();
    samples.push_back(milliseconds_since(start) * 1e6 / calls);
  }
  return summary(std::move(samples));
}

/// The first kernel of a process, from a warm disk.
Json first(const Options& options) {
  const auto start = Clock::now();
  const auto backend = open_backend(options);
  const double opened = milliseconds_since(start);
  const auto kernels = make_kernels(options, backend->facts().target);
  auto provider = fresh_provider(backend, open_cache(options.folder));
  const auto asked = Clock::now();
  const cache::Outcome outcome = obtain(provider, kernels.front(), options.on_device);
  return {
      {"from", cache::to_string(outcome)}, {"open_device_ms", opened}, {"first_kernel_ms", milliseconds_since(asked)}};
}

Json time_service(const Options& options, const std::vector<Kernel>& kernels,
                  const std::shared_ptr<backend::Backend>& backend) {
  ServiceOptions service_options;
  service_options.address = "unix:" + (options.folder / "bench.sock").string();
  service_options.cache_dir = options.folder.string();
  service_options.log = print_warnings;
  const auto service = value_of(CompileService::start(service_options));
  api::RemoteChoice choice;
  choice.service = service.address();
  const auto client = value_of(api::open_service(choice, api::settings(), DeviceKind::cuda, print_warnings));
  const std::filesystem::path own = options.folder / "client";
  Json times;
  times["service_hit_ms"] = time_rounds(options, kernels, cache::Outcome::service,
                                        [&] { return fresh_provider(backend, open_cache(std::nullopt), client); });
  times["service_hit_kept_on_disk_ms"] = time_rounds(options, kernels, cache::Outcome::service, [&] {
    std::filesystem::remove_all(own);
    return fresh_provider(backend, open_cache(own), client);
  });
  std::filesystem::remove_all(own);
  return times;
}

Json hits(const Options& options) {
  const auto backend = open_backend(options);
  const auto kernels = make_kernels(options, backend->facts().target);
  auto filling = fresh_provider(backend, open_cache(options.folder));
  std::size_t bytes = 0;
  for (const Kernel& kernel : kernels) {
    bytes += value_of(filling.build(kernel.spec, kernel.text())).entry->artifact.size();
  }
  Json times{{"bytes_of_a_kernel", bytes / kernels.size()}};
  times["disk_hit_ms"] = time_rounds(options, kernels, cache::Outcome::disk,
                                     [&] { return fresh_provider(backend, open_cache(options.folder)); });
  const auto cache = open_cache(options.folder);
  const cache::KernelKey key = value_of(filling.names_of(kernels.front().spec)).key;
  if (!cache->find(key)) give_up({ErrorCode::io_error, "cache", "no entry", "the one that was built", ""});
  times["memory_hit_ns"] = time_calls(options.rounds, [&] { (void)cache->find(key); });
  if (options.on_device) {
    auto warm = fresh_provider(backend, cache);
    obtain(warm, kernels.front(), true);
    times["loaded_hit_ns"] =
        time_calls(options.rounds, [&] { (void)warm.get(kernels.front().spec, kernels.front().text()); });
  }
  times.update(time_service(options, kernels, backend));
  return times;
}

/// Seconds that this thread has stood in a queue for a processor (proc(5), schedstat); 0 where the system does not
/// tell.
double seconds_queued() {
  std::ifstream file("/proc/thread-self/schedstat");
  double on_processor = 0, queued = 0;
  file >> on_processor >> queued;
  return queued * 1e-9;
}

/// Adds up what the tasks of each thread took.
class ThreadTimes {
 public:
  template <typename Task>
  void time(const Task& task) {
    const auto start = Clock::now();
    const double queued_before = seconds_queued();
    task();
    const double queued = seconds_queued() - queued_before;
    const std::scoped_lock lock(mutex_);
    unhindered_[std::this_thread::get_id()] += milliseconds_since(start) / 1e3 - queued;
  }
  /// Of the thread that took longest, without the waits for processors that others used.
  [[nodiscard]] double longest() const {
    double longest = 0;
    for (const auto& [thread, seconds] : unhindered_) longest = std::max(longest, seconds);
    return longest;
  }

 private:
  std::mutex mutex_;
  std::map<std::thread::id, double> unhindered_;
};

/// Compiles into a cold folder, as many at a time as the machine lets.
Json prepare(const Options& options) {
  const auto backend = open_backend(options);
  const auto kernels = make_kernels(options, backend->facts().target);
  std::filesystem::remove_all(options.folder);
  auto provider = fresh_provider(backend, open_cache(options.folder));
  const int cores = attention::machine_resources().cores;
  const auto start = Clock::now();
  ThreadTimes times;
  std::atomic<int> left = static_cast<int>(kernels.size());
  {
    attention::CompileQueue queue(
        [](int running) { return attention::may_compile(attention::machine_resources(), 0, running); });
    for (const Kernel& kernel : kernels) {
      queue.add([&] {
        times.time([&] {
          if (obtain(provider, kernel, options.on_device) == cache::Outcome::built) return;
          give_up({ErrorCode::io_error, "kernel", "a warm cache", "a cold one", ""});
        });
        --left;
        left.notify_all();
      });
    }
    for (int now = left; now > 0; now = left) left.wait(now);
  }
  timespec user{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &user);
  return {{"kernels", kernels.size()},
          {"cores", cores},
          {"seconds", milliseconds_since(start) / 1e3},
          {"unhindered_seconds", times.longest()},
          {"cpu_seconds", static_cast<double>(user.tv_sec) + static_cast<double>(user.tv_nsec) * 1e-9}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Times the ways in which a kernel comes to a process");
  Options options;
  std::string part, device = "none";
  app.add_option("part", part)->required()->check(CLI::IsMember({"first", "hits", "prepare"}));
  app.add_option("--folder", options.folder, "A cache of the benchmark's own; prepare empties it")->required();
  app.add_option("--device", device, "none: all steps before the device")->check(CLI::IsMember({"none", "cuda"}));
  app.add_option("--kernels", options.kernels)->check(CLI::Range(1, 10000));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 10000));
  app.add_option("--head-dim", options.head_dim)->check(CLI::Range(16, 256));
  CLI11_PARSE(app, argc, argv);
  options.on_device = device == "cuda";
  const std::map<std::string, std::function<Json(const Options&)>> parts{
      {"first", first}, {"hits", hits}, {"prepare", prepare}};
  std::printf("%s\n", parts.at(part)(options).dump().c_str());
}
