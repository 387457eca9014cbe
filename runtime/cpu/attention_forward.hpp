// attention_forward.hpp -- the forward over planned tiles: online softmax, one task a query tile.
#pragma once

#include "runtime/backend/backend.hpp"
#include "runtime/cpu/call_sizes.hpp"
#include "runtime/cpu/tile_functions.hpp"
#include "runtime/cpu/workspace.hpp"

namespace flashspan::cpu {

void attention_forward(const TileFunctions& functions, const backend::LaunchArgs& args, const CallSizes& sizes,
                       const Workspace& workspace);

}  // namespace flashspan::cpu
