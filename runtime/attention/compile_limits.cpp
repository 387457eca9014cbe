#include "runtime/attention/compile_limits.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

namespace flashspan::attention {
namespace {

/// MemAvailable, which counts what the page cache would give back.
std::optional<std::int64_t> available_to_system(const std::filesystem::path& root) {
  std::ifstream file(root / "proc/meminfo");
  std::string name, unit;
  for (std::int64_t kilobytes = 0; file >> name >> kilobytes; std::getline(file, unit)) {
    if (name == "MemAvailable:") return kilobytes << 10;
  }
  return std::nullopt;
}

std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  if (!(file >> number)) return std::nullopt;  // not there, or "max"
  return number;
}

/// Those that the calling thread may run on. hardware_concurrency() counts those of the whole machine, since
/// glibc 2.35.
int cores_by_affinity(const std::filesystem::path& root) {
  std::ifstream file(root / "proc/thread-self/status");
  constexpr std::string_view name = "Cpus_allowed:";  // a number in hexadecimal, with commas
  int cores = 0;
  for (std::string line; cores == 0 && std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    for (const char digit : line.substr(name.size())) {
      constexpr std::string_view digits = "0123456789abcdef";
      if (const std::size_t value = digits.find(digit); value != digits.npos) cores += std::popcount(value);
    }
  }
  return std::max(1, cores > 0 ? cores : static_cast<int>(std::thread::hardware_concurrency()));
}

/// The processors' time that the control group gets, in cores, rounded up; nothing if it is not limited.
std::optional<int> cores_by_quota(const std::filesystem::path& root) {
  std::ifstream file(root / "sys/fs/cgroup/cpu.max");
  std::int64_t microseconds = 0, period = 0;
  if (!(file >> microseconds >> period) || period <= 0) return std::nullopt;  // not there, or "max"
  return static_cast<int>(std::max<std::int64_t>((microseconds + period - 1) / period, 1));
}

/// What the group's limit leaves, where there is one. Containers see their own group at the top of the tree.
std::optional<std::int64_t> available_to_group(const std::filesystem::path& root) {
  const std::filesystem::path group = root / "sys/fs/cgroup";
  const auto limit = number_in(group / "memory.max");
  const auto used = number_in(group / "memory.current");
  if (!limit || !used) return std::nullopt;
  return std::max<std::int64_t>(*limit - *used, 0);
}

}  // namespace

MachineResources machine_resources(const std::filesystem::path& root) {
  MachineResources resources;
  resources.cores = cores_by_affinity(root);
  if (const auto quota = cores_by_quota(root)) resources.cores = std::min(resources.cores, *quota);
  resources.available_bytes = available_to_system(root);
  if (const auto group = available_to_group(root)) {
    resources.available_bytes = std::min(resources.available_bytes.value_or(*group), *group);
  }
  return resources;
}

bool may_compile(const MachineResources& resources, int threads, int running) {
  if (running == 0) return true;
  if (running >= (threads > 0 ? threads : resources.cores)) return false;
  return !resources.available_bytes || *resources.available_bytes >= compile_bytes;
}

}  // namespace flashspan::attention
