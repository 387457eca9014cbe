// launch_grids.hpp -- how many blocks of how many threads every kernel of a call is launched with. The kernels derive
// their work from blockIdx.x alone, so the two must agree (templates/attention, templates/plan).
#pragma once

#include <cstdint>

#include "codegen/kernel/kernel_spec.hpp"
#include "flashspan/core/error.hpp"
#include "runtime/cuda/workspace_layout.hpp"
#include "templates/attention/parameters.cuh"
#include "templates/attention/score_gradient_arguments.cuh"

namespace flashspan::cuda {

/// Threads of a block of the planner, and of attention_backward_delta and attention_backward_sink (one block
/// a head).
using flashspan_device::delta_threads;
using flashspan_device::plan_threads;
inline constexpr int threads_per_warp = 32;
/// Most blocks of the planner, and of the kernels that go over the elements of score gradients: about as many as run at
/// once.
using flashspan_device::most_plan_blocks;
inline constexpr std::int64_t most_element_blocks = std::int64_t{8} * 132;

/// Blocks of each kernel; 0: nothing to do, or not of this direction.
struct LaunchGrids {
  std::int64_t plan_program = 0;  ///< of interpreted masks
  std::int64_t plan_tiles = 0;
  std::int64_t forward = 0;
  std::int64_t backward_delta = 0;
  std::int64_t backward_sink = 0;  ///< for calls that ask for the sink's gradient
  std::int64_t backward_dq = 0;
  std::int64_t backward_dkdv = 0;
  std::int64_t backward_tiles = 0;
  std::int64_t backward_query_gradient = 0;
  std::int64_t backward_score_sum = 0;  ///< of specs with score gradients; a run
};

/// Error: unsupported if a grid is larger than a launch can be, or a size does not fit 32 bits.
[[nodiscard]] Result<LaunchGrids> launch_grids(const kernel::KernelSpec& spec, const AttentionShape& shape,
                                               const PlanSize& plan);

/// Blocks of attention_backward_score_clear and _round, and threads of a block of _sum.
[[nodiscard]] std::int64_t score_element_blocks(const flashspan_device::ScoreGradientArguments& gradients);
[[nodiscard]] int score_sum_threads(const kernel::KernelSpec& spec);

}  // namespace flashspan::cuda
