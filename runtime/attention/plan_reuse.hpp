// plan_reuse.hpp -- whether a call may do with the tile plan that an earlier one has left in the workspace.
#pragma once

#include "flashspan/core/error.hpp"
#include "flashspan/core/tile_plan.hpp"
#include "flashspan/core/types.hpp"
#include "runtime/attention/attention_call.hpp"
#include "runtime/attention/kernel_provider.hpp"

namespace flashspan::attention {

/// The plan that the call, of these sizes and with this kernel, makes or needs.
[[nodiscard]] TilePlan plan_of(const AttentionCall& call, const AttentionShape& shape, const ReadyKernel& kernel);

/// Error: bad_argument "plan", saying what differs, if `held` is made and is not `needed`.
[[nodiscard]] Result<void> check_plan(const TilePlan& held, const TilePlan& needed);

}  // namespace flashspan::attention
