// plan_tiles.cuh -- the planner: which tiles hold a visible pair, listed per row of tiles. Until its row is listed,
// entry `tile` of a row stands for that tile itself.
#pragma once

#include "plan/classify.cuh"
#include "plan/open_tiles.cuh"

/// A block for every tile, or one to list rows that have none; most_plan_blocks at most.
extern "C" __global__ void __launch_bounds__(flashspan_device::plan_threads, 1)
    plan_tiles(const __grid_constant__ flashspan_device::AttentionParameters p,
               const __grid_constant__ flashspan_device::ProgramArguments mask) {
  using namespace flashspan_device;
  const TileGrid grid(p);
  classify_tiles(p, grid, mask);
  list_tiles(p, grid, mask);
}
