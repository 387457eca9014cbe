// tile_plan.hpp -- TilePlan: what a workspace is known to hold from an earlier call.
#pragma once

#include <array>
#include <cstdint>

#include "flashspan/core/types.hpp"

#pragma GCC visibility push(default)
namespace flashspan {

/// Lets calls share the plan of tiles that one of them has put into its workspace: a model whose layers have one mask
/// plans once, not once a layer.
///
///   TilePlan plan;
///   call.plan = &plan;
///   for (const Layer& layer : layers) { /* tensors of the layer into call */ attention.forward(call); }
///   plan = {};  // tensors of the mask have other values now: the next call plans anew
///
/// A call that is given a TilePlan which is not made plans, and makes it; one that is given a made TilePlan reuses what
/// stands in the workspace. It is refused (bad_argument "plan") unless its kernel, sizes, mask and workspace are those
/// of the call that planned. What cannot be checked is the caller's promise: since then the values in the mask's
/// tensors have not changed, nothing else has written to the workspace, and the call comes behind the one that planned,
/// on the same stream or ordered by events.
///
/// Calls that share a TilePlan, like calls that share a workspace, come one after another. Directions have a plan and a
/// workspace each. In a capture of a CUDA graph, calls that share a plan belong into one capture together with the one
/// that makes it: every replay plans again, for the values that the mask's tensors have then.
struct TilePlan {
  bool made = false;
  /// Of the call that planned; meant for comparison only.
  std::array<std::uint8_t, 16> kernel{};
  AttentionShape shape;
  const void* workspace = nullptr;
  std::uint64_t mask_data = 0;  ///< hash of the mask's scalars and of where its tensors are
};

}  // namespace flashspan
#pragma GCC visibility pop
