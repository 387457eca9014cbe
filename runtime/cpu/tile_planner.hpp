// tile_planner.hpp -- which tiles to visit, exactly those with a visible pair: large blocks of tiles are settled by
// interval analysis, and what it leaves open, split down to single tiles, by the compiled predicate.
#pragma once

#include "codegen/mask/bindings.hpp"
#include "runtime/cpu/tile_functions.hpp"
#include "runtime/cpu/workspace.hpp"

namespace flashspan::cpu {

/// Fills the tile lists of `workspace` (by_key only if it is there). The program's tensors are in host memory.
void plan_tiles(const TileFunctions& functions, const mask::Program& program, const mask::Bindings& bindings,
                const CallSizes& sizes, const Workspace& workspace);

}  // namespace flashspan::cpu
