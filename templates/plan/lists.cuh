// lists.cuh -- the planner's last kernel: takes the empty tiles out of every row of entries, in place, and orders the
// rows by what they cost.
#pragma once

#include "plan/order.cuh"
#include "plan/tile_grid.cuh"

namespace flashspan_device {

// Time of a tile in sixteenths of a full one.
constexpr int full_tile_cost = 16;
constexpr int partial_tile_cost = 18;

struct RowTotals {
  int count;
  int cost;
};

/// By one warp. What a step writes stands before all that is still to be read.
__device__ __forceinline__ RowTotals compact_row(TileEntry* entries, int across) {
  constexpr int steps = 4;  // in flight together
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned int lanes_before = (1u << lane) - 1;
  RowTotals totals = {0, 0};
  for (int first = 0; first < across; first += steps * 32) {
    TileEntry found[steps];
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int tile = first + step * 32 + lane;
      found[step] = tile < across ? entries[tile] : TileEntry{tile, empty_tile, 0};
    }
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const bool listed = found[step].mask != empty_tile;
      const unsigned int visited = __ballot_sync(0xffffffffu, listed);
      const unsigned int full = __ballot_sync(0xffffffffu, found[step].mask == full_tile);
      if (listed) entries[totals.count + __popc(visited & lanes_before)] = found[step];
      totals.count += __popc(visited);
      totals.cost += __popc(full) * full_tile_cost + __popc(visited & ~full) * partial_tile_cost;
    }
  }
  return totals;
}

__device__ __forceinline__ int blocks_of_rows(int rows) {
  return (rows + rows_per_list_block - 1) / rows_per_list_block;
}

}  // namespace flashspan_device

/// Blocks of the rows of query tiles, list by list, then of the rows of key tiles if those are planned.
extern "C" __global__ void __launch_bounds__(flashspan_device::plan_threads, 1)
    plan_lists(const __grid_constant__ flashspan_device::AttentionParameters p,
               const __grid_constant__ flashspan_device::ProgramArguments mask,
               const __grid_constant__ flashspan_device::ProgramArguments score) {
  using namespace flashspan_device;
  (void)mask, (void)score;
  __shared__ bool is_last;
  const TileGrid grid(p);
  const int query_blocks = grid.lists * blocks_of_rows(grid.query_tiles);
  const bool by_key = static_cast<int>(blockIdx.x) >= query_blocks;
  const int block = static_cast<int>(blockIdx.x) - (by_key ? query_blocks : 0);
  const int rows = by_key ? grid.key_tiles : grid.query_tiles;
  const int across = by_key ? grid.query_tiles : grid.key_tiles;
  const int list = block / blocks_of_rows(rows);
  const int row = block % blocks_of_rows(rows) * rows_per_list_block + static_cast<int>(threadIdx.x) / 32;
  const long long first_row = static_cast<long long>(list) * rows;
  int* const order = (by_key ? p.by_key.order : p.by_query.order) + first_row;
  if (row < rows) {
    TileEntry* const entries = by_key ? p.by_key.entries : p.by_query.entries;
    const RowTotals totals = compact_row(entries + (first_row + row) * across, across);
    if (threadIdx.x % 32 == 0) {
      (by_key ? p.by_key.counts : p.by_query.counts)[first_row + row] = totals.count;
      order[row] = totals.cost;
    }
  }
  // The block that ends last finds the costs of all rows written.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    int* const done = p.scratch.blocks_done + (by_key ? grid.lists : 0) + list;
    is_last = atomicAdd(done, 1) == blocks_of_rows(rows) - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  order_rows(order, rows);
}
