// attention_backward.hpp -- the backward over planned tiles, without atomics: every sum has one writer that adds in a
// fixed order, so results do not depend on the number of threads.
#pragma once

#include <vector>

#include "codegen/kernel/score_lookups.hpp"
#include "runtime/backend/backend.hpp"
#include "runtime/cpu/call_sizes.hpp"
#include "runtime/cpu/tile_functions.hpp"
#include "runtime/cpu/workspace.hpp"

namespace flashspan::cpu {

/// `lookups`: those whose tensors take a gradient.
void attention_backward(const TileFunctions& functions, const std::vector<kernel::ScoreLookup>& lookups,
                        const backend::LaunchArgs& args, const CallSizes& sizes, const Workspace& workspace);

}  // namespace flashspan::cpu
