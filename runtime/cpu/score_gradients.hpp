// score_gradients.hpp -- gradients of the tensors that the score program looks up, a pass of its own over the tiles.
#pragma once

#include <vector>

#include "codegen/kernel/score_lookups.hpp"
#include "runtime/backend/backend.hpp"
#include "runtime/cpu/score_tile.hpp"
#include "runtime/cpu/workspace.hpp"

namespace flashspan::cpu {

/// Writes args.score_gradients. The operands of all tiles are packed. Tiles are worked on in parallel; what they add is
/// added in the order of the tiles, so results do not depend on the number of threads.
void differentiate_looked_up(const TileContext& context, const backend::LaunchArgs& args, const Workspace& workspace,
                             const std::vector<kernel::ScoreLookup>& lookups);

}  // namespace flashspan::cpu
