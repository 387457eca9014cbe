#include "runtime/cuda/launch_grids.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "codegen/kernel/emit_cuda.hpp"

namespace flashspan::cuda {
namespace {

/// Largest x dimension of a grid ("Technical Specifications per Compute Capability"), and of the kernels' int sizes.
constexpr std::int64_t largest_int32 = std::numeric_limits<std::int32_t>::max();

std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

/// Three sizes of at most 2^31 do not fit one product of 64 bits: a product past the limit stays just past it.
std::int64_t blocks(std::int64_t tiles, std::int64_t heads, std::int64_t batch) {
  const std::int64_t lists = heads * batch;
  if (lists == 0 || tiles == 0) return 0;
  return tiles > largest_int32 / lists ? largest_int32 + 1 : tiles * lists;
}

Result<void> check_sizes(const AttentionShape& shape) {
  for (const auto& [name, size] :
       {std::pair{"batch", shape.batch}, std::pair{"query_heads", shape.query_heads},
        std::pair{"kv_heads", shape.kv_heads}, std::pair{"q_len", shape.q_len}, std::pair{"kv_len", shape.kv_len}}) {
    if (size <= largest_int32) continue;
    return Error{ErrorCode::unsupported, name, std::to_string(size), "at most " + std::to_string(largest_int32), ""};
  }
  return {};
}

Result<void> check_grid(const char* entry, std::int64_t grid) {
  if (grid <= largest_int32) return {};
  return Error{ErrorCode::unsupported, std::string("grid of ") + entry,
               "more than 2147483647 blocks (tiles x heads x batch)",
               "at most 2147483647 blocks: split the batch or the heads over several calls", ""};
}

/// The planner counts over all lists in 32 bits: patches and the words that say which of their tiles are undecided, and
/// groups of rows.
Result<void> check_plan(const kernel::KernelSpec& spec, const PlanSize& plan) {
  constexpr std::int64_t most = std::int64_t{1} << 29;
  const std::int64_t counted = std::max(plan.patches(), plan.row_groups(spec.direction));
  if (blocks(counted, plan.heads, plan.batch) <= most) return {};
  return Error{
      ErrorCode::unsupported, "tile plan",
      "more than 536870912 patches of 8 x 8 tiles (tiles x heads x batch, as far as the mask tells them apart)",
      "at most 536870912: split the batch or the heads over several calls", ""};
}

/// See templates/plan/plan_tiles.cuh.
void plan_grids(LaunchGrids& grids, const kernel::KernelSpec& spec, const PlanSize& plan) {
  const std::int64_t groups = blocks(plan.row_groups(spec.direction), plan.heads, plan.batch);
  if (groups == 0) return;
  grids.plan_program = spec.lowering == mask::LoweringKind::interpreted ? 1 : 0;
  const std::int64_t tiles = blocks(plan.query_tiles * plan.key_tiles, plan.heads, plan.batch);
  grids.plan_tiles = std::min<std::int64_t>(std::max(tiles, groups), most_plan_blocks);
}

/// Blocks of attention_backward_delta: rows of all heads and batches together, as they stand in delta.
std::int64_t delta_grid(const AttentionShape& shape, std::int64_t rows_per_head, std::int64_t rows_per_block) {
  const std::int64_t lists = shape.query_heads * shape.batch;
  if (lists != 0 && rows_per_head > largest_int32 * rows_per_block / lists) return largest_int32 + 1;
  return divide_up(rows_per_head * lists, rows_per_block);
}

void backward_grids(LaunchGrids& grids, const kernel::KernelSpec& spec, const AttentionShape& shape,
                    std::int64_t query_tiles, std::int64_t key_tiles) {
  grids.backward_sink = shape.query_heads;
  const std::int64_t of_queries = blocks(query_tiles, shape.query_heads, shape.batch);
  if (!spec.score_gradients.empty()) grids.backward_score_sum = of_queries;
  const std::int64_t of_keys = blocks(key_tiles, shape.kv_heads, shape.batch);
  switch (spec.family) {
    case kernel::KernelFamily::mma:
      grids.backward_delta = delta_grid(shape, statistics_rows(spec, shape), delta_threads / threads_per_warp);
      grids.backward_dq = of_queries;
      grids.backward_dkdv = of_keys;
      break;
    case kernel::KernelFamily::hopper:
      grids.backward_delta =
          delta_grid(shape, statistics_rows(spec, shape), delta_threads / flashspan_device::delta_lanes_per_row);
      grids.backward_tiles = of_keys;
      grids.backward_query_gradient = of_queries;
      break;
  }
}

}  // namespace

std::int64_t score_element_blocks(const flashspan_device::ScoreGradientArguments& gradients) {
  std::int64_t most = 0;
  for (int i = 0; i < gradients.count; ++i) most = std::max<std::int64_t>(most, gradients.of[i].elements);
  return std::min(divide_up(most, flashspan_device::score_element_threads), most_element_blocks);
}

int score_sum_threads(const kernel::KernelSpec& spec) {
  constexpr int rows_per_warp = 16;
  return spec.tile.block_m / rows_per_warp * threads_per_warp;
}

Result<LaunchGrids> launch_grids(const kernel::KernelSpec& spec, const AttentionShape& shape, const PlanSize& plan) {
  if (const auto fits = check_sizes(shape); !fits) return fits.error();
  if (const auto fits = check_plan(spec, plan); !fits) return fits.error();
  const std::int64_t query_tiles = divide_up(shape.q_len, spec.tile.block_m);
  const std::int64_t key_tiles = divide_up(shape.kv_len, spec.tile.block_n);

  LaunchGrids grids;
  // A plan for no problem is never read.
  if (shape.batch > 0 && shape.query_heads > 0) plan_grids(grids, spec, plan);
  switch (spec.direction) {
    case Direction::forward:
      grids.forward = std::max(blocks(query_tiles, shape.query_heads, shape.batch), split_size(spec, shape).portions);
      break;
    case Direction::backward:
      backward_grids(grids, spec, shape, query_tiles, key_tiles);
      break;
  }
  for (const auto& [entry, grid] :
       {std::pair{kernel::entry_forward, grids.forward}, std::pair{kernel::entry_backward_delta, grids.backward_delta},
        std::pair{kernel::entry_backward_dq, grids.backward_dq},
        std::pair{kernel::entry_backward_dkdv, grids.backward_dkdv},
        std::pair{kernel::entry_backward_tiles, grids.backward_tiles},
        std::pair{kernel::entry_backward_query_gradient, grids.backward_query_gradient},
        std::pair{kernel::entry_backward_score_sum, grids.backward_score_sum}}) {
    if (const auto fits = check_grid(entry, grid); !fits) return fits.error();
  }
  return grids;
}

}  // namespace flashspan::cuda
