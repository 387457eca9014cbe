// workspace_layout.hpp -- how the caller's workspace is divided: the tile plan, partial results of rows that are cut
// into portions, and delta for the backward.
#pragma once

#include <cstdint>

#include "codegen/kernel/kernel_spec.hpp"
#include "runtime/backend/backend.hpp"

namespace flashspan::cuda {

/// Sizes of a tile plan. All zero but batch and heads when the lowering takes no plan.
struct PlanSize {
  std::int64_t batch = 1;        ///< B if the mask depends on b, else 1
  std::int64_t heads = 1;        ///< Hq if it depends on h, else 1
  std::int64_t query_tiles = 0;  ///< ceil(q_len / block_m)
  std::int64_t key_tiles = 0;    ///< ceil(kv_len / block_n)

  [[nodiscard]] std::int64_t lists() const { return batch * heads; }
  [[nodiscard]] std::int64_t tiles() const { return lists() * query_tiles * key_tiles; }
  /// Of tiles that the planner classifies together, of one list.
  [[nodiscard]] std::int64_t patches() const;
  /// Groups of rows that are listed together, of one list (flashspan_device::RowGroup).
  [[nodiscard]] std::int64_t row_groups(Direction direction) const;
};
[[nodiscard]] PlanSize plan_size(const kernel::KernelSpec& spec, const backend::LaunchArgs& args);

/// Rows of tiles cut into portions (templates/attention/portions.cuh). All zero where rows stay whole.
struct SplitSize {
  std::int64_t rows = 0;      ///< of tiles, all heads and batches together
  std::int64_t portions = 0;  ///< at most; how many there are is found out on the device
  std::int64_t warps = 0;     ///< of a block, that have rows within q_len
};
/// Of a spec that splits rows, and a shape that kernel::worth_splitting() holds of.
[[nodiscard]] SplitSize split_size(const kernel::KernelSpec& spec, const AttentionShape& shape);

/// One part of the workspace. Offsets are from the workspace's first 256-byte boundary and multiples of 256.
struct WorkspacePart {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

/// Lists of one side of a plan: flashspan_device::TilePlanArguments.
struct ListParts {
  WorkspacePart counts;   ///< i32 [batch, heads, rows]
  WorkspacePart entries;  ///< TileEntry [batch, heads, rows, across]
  WorkspacePart order;    ///< i32 [batch, heads, rows]
};

struct WorkspaceLayout {
  ListParts by_query;          ///< rows of query tiles
  ListParts by_key;            ///< backward: rows of key tiles
  WorkspacePart code;          ///< interpreted: flashspan_device::ProgramCode
  WorkspacePart query_bits;    ///< forward, backward in two passes: u32 [bit_slots, 4 block_m]
  WorkspacePart key_bits;      ///< backward: u32 [bit_slots, 4 block_n]
  std::int64_t bit_slots = 0;  ///< a slot for every tile, up to most_bit_bytes()
  WorkspacePart undecided;     ///< u32 [batch, heads, patches, words_per_patch]
  WorkspacePart shares;        ///< u64, of the planner's blocks
  WorkspacePart counters;      ///< i32: next_item, slots_taken, groups_listed [2, batch, heads], open_tiles
  WorkspacePart partials;      ///< split forward: f32 [portions, warps, floats of 16 rows and their statistics]
  WorkspacePart tickets;       ///< split forward: i32 [rows, warps]
  SplitSize split;
  WorkspacePart delta;        ///< backward: f32 [B, Hq, Sq], in the hopper family padded to whole tiles of queries
  WorkspacePart shifted_lse;  ///< hopper backward: as delta
  WorkspacePart query_gradient_sums;  ///< hopper backward: f32 [B, Hq, tiles of queries, two warpgroups' share]
  WorkspacePart score_sums;  ///< deterministic score gradients: u64 for every element of each, one after another
  std::int64_t bytes = 0;    ///< to ask the caller for; enough for a workspace of any alignment
};
/// Most memory that the bit tiles of one plan take, by query or by key: half of what the query takes, so that long
/// sequences have bits for as many of their tiles as short ones, and 16 MiB at least. Tiles past it are evaluated pair
/// by pair in each head, which takes twice the time of a forward.
[[nodiscard]] std::int64_t most_bit_bytes(const AttentionShape& shape, DType dtype);
/// `score_sums`: elements that need sums in fixed point, as score_sums() counts them.
[[nodiscard]] WorkspaceLayout workspace_layout(const kernel::KernelSpec& spec, const AttentionShape& shape,
                                               const PlanSize& plan, std::int64_t score_sums = 0);

/// Elements of the score gradients of a deterministic call; 0 of any other.
[[nodiscard]] std::int64_t score_sums(const backend::LaunchArgs& args);

/// Rows of one head in delta and shifted_lse of a backward.
[[nodiscard]] std::int64_t statistics_rows(const kernel::KernelSpec& spec, const AttentionShape& shape);

/// Where a part stands in a workspace that starts at `workspace`.
[[nodiscard]] void* part_address(void* workspace, const WorkspacePart& part);

}  // namespace flashspan::cuda
