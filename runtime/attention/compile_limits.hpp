// compile_limits.hpp -- how many compiles this machine bears at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace flashspan::attention {

/// What the machine has to give, in the control group that this process is in.
struct MachineResources {
  int cores = 1;
  std::optional<std::int64_t> available_bytes;  ///< of memory; nothing where the system does not tell
};

/// Reads /proc and /sys below `root`. The cores are those that the calling thread may run on, and no more than the
/// control group's share of their time.
[[nodiscard]] MachineResources machine_resources(const std::filesystem::path& root = "/");

/// What one compile is taken to need at most. NVRTC 13.0 takes 110 MB when it is first used and 25 MB for each further
/// kernel at a time, the largest of ours included.
inline constexpr std::int64_t compile_bytes = std::int64_t{128} << 20;

/// Whether another compile may start beside `running` ones. One may always run. `threads`: most at a time; 0: one a
/// core.
[[nodiscard]] bool may_compile(const MachineResources& resources, int threads, int running);

}  // namespace flashspan::attention
