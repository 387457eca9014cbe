// attention_run.hpp -- one forward, or forward and backward, through the back end's five verbs, from the oracle's
// tensors to the oracle's answer.
#pragma once

#include <cstdint>
#include <optional>

#include "cpu_kernel.hpp"
#include "flashspan/core/types.hpp"
#include "oracle/attention.hpp"

namespace flashspan::cpu_test {

/// What a test chooses about a run beside the problem itself.
struct RunOptions {
  DType dtype = DType::f32;
  int block_m = 64, block_n = 64;
  bool give_lse = true;      ///< false: the forward is not asked for it (and no backward is run)
  bool head_inside = false;  ///< tensors lie as [B, S, H, D], with 3 elements of room after every row
  int threads = 0;           ///< 0: as many as TBB likes
  bool plan_first = false;   ///< run() finds its tile plan in the workspace, and 0xFF in all the rest
};

/// `problem.visible` and `.score` are not looked at: `mask` and `score` say the same as programs (null: none). The
/// backward runs if problem.out_gradient is given. Results are pre-filled with NaN, workspaces with 0xFF.
oracle::Answer run_attention(const oracle::Problem& problem, const BoundProgram* mask, const BoundProgram* score,
                             const RunOptions& options = {});

/// Tiles that the forward's plan visits, over the plan's batches and heads: all, and the partial ones.
struct VisitedTiles {
  std::int64_t visited = 0, partial = 0;
};
VisitedTiles count_visited_tiles(const AttentionShape& shape, const BoundProgram& mask, Direction direction,
                                 const RunOptions& options = {});

[[nodiscard]] oracle::Format format_of(DType dtype);

}  // namespace flashspan::cpu_test
