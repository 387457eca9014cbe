// arch_limits.hpp -- what a multiprocessor of each CUDA architecture holds.
#pragma once

#include <cstdint>

#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"

namespace flashspan::kernel {

/// Of one multiprocessor. Source: CUDA C++ Programming Guide, "Compute Capabilities", table "Technical Specifications
/// per Compute Capability"; the same numbers stand in libcu++'s cuda::arch_traits.
struct ArchLimits {
  int number = 0;  ///< of the architecture: 90 for sm_90 and sm_90a
  std::int64_t shared_bytes = 0;
  std::int64_t shared_bytes_per_block = 0;  ///< that one block may ask for (opt-in limit)
  int blocks = 0;
  int warps = 0;
};

inline constexpr int oldest_arch = 80;  ///< the first with asynchronous copies and bfloat16 products
inline constexpr std::int64_t reserved_shared_bytes = 1024;  ///< that the driver takes for every block, from 8.0 on
inline constexpr int registers_per_multiprocessor = 65536;   ///< and per block, on all of them
inline constexpr int most_registers_per_thread = 255;
inline constexpr int most_threads_per_block = 1024;
inline constexpr int threads_per_warp = 32;
inline constexpr int register_granule = 8;  ///< a thread's registers are given out in multiples of it

/// Error: unsupported, for an architecture that no kernel runs on.
[[nodiscard]] Result<void> check_arch(Arch arch);

/// Of an architecture that is not in the table, the smallest of every number.
[[nodiscard]] ArchLimits arch_limits(Arch arch);

/// Most registers that a thread can have in a block of so many threads, of which there is one a multiprocessor at
/// least.
[[nodiscard]] int register_limit(int threads);

/// Blocks that a multiprocessor holds at a time; 0: not one.
[[nodiscard]] int resident_blocks(const ArchLimits& limits, int threads, int registers, std::int64_t shared_bytes);

}  // namespace flashspan::kernel
