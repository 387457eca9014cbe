// workspace_layout.hpp -- how the caller's workspace is divided: tile lists, and delta for the backward.
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
};
[[nodiscard]] PlanSize plan_size(const kernel::KernelSpec& spec, const backend::LaunchArgs& args);

/// One part of the workspace. Offsets are from the workspace's first 256-byte boundary and multiples of 256.
struct WorkspacePart {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

struct WorkspaceLayout {
  WorkspacePart by_query_counts;  ///< i32 [batch, heads, query_tiles]
  WorkspacePart by_query_tiles;   ///< i32 [batch, heads, query_tiles, key_tiles]
  WorkspacePart by_key_counts;    ///< backward: i32 [batch, heads, key_tiles]
  WorkspacePart by_key_tiles;     ///< backward: i32 [batch, heads, key_tiles, query_tiles]
  WorkspacePart delta;            ///< backward: f32 [B, Hq, Sq]
  std::int64_t bytes = 0;         ///< to ask the caller for; enough for a workspace of any alignment
};
[[nodiscard]] WorkspaceLayout workspace_layout(const kernel::KernelSpec& spec, const AttentionShape& shape,
                                               const PlanSize& plan);

/// Where a part stands in a workspace that starts at `workspace`.
[[nodiscard]] void* part_address(void* workspace, const WorkspacePart& part);

}  // namespace flashspan::cuda
