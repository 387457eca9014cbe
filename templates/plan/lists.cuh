// lists.cuh -- rows whose tiles are all settled: the empty ones are taken out of the entries, in place, and the rows of
// a list ordered by what they cost.
#pragma once

#include "plan/counters.cuh"
#include "plan/order.cuh"
#include "plan/tile_grid.cuh"

namespace flashspan_device {

// Time of a tile in sixteenths of a full one.
constexpr int full_tile_cost = 16;
constexpr int partial_tile_cost = 18;

/// Rows of queries, stationary in the forward, come strictly by cost; of causal ones the last are the longest. Those of
/// keys are alike within four tiles: neighbours, which see the same queries, then add to the same sums of dQ at about
/// the same time, while they are in the L2 cache. Of causal ones the first are the longest.
__device__ __forceinline__ RowOrder order_of_rows(bool by_key) {
  return by_key ? RowOrder{4 * full_tile_cost, true} : RowOrder{1, false};
}

struct RowTotals {
  int count;
  int cost;
};

/// An entry as it is moved: the compiler keeps each of its members in a register of its own.
using EntryBits = unsigned long long;
static_assert(sizeof(EntryBits) == sizeof(TileEntry));

__device__ __forceinline__ EntryBits bits_of(const TileEntry& entry) {
  EntryBits bits;
  memcpy(&bits, &entry, sizeof(bits));
  return bits;
}
__device__ __forceinline__ int mask_of(EntryBits bits) {
  TileEntry entry;
  memcpy(&entry, &bits, sizeof(entry));
  return entry.mask;
}

/// By one warp. What a step writes stands before all that is still to be read.
__device__ __forceinline__ RowTotals compact_row(EntryBits* entries, int across) {
  constexpr int steps = 4;  // in flight together
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned int lanes_before = (1u << lane) - 1;
  RowTotals totals = {0, 0};
  for (int first = 0; first < across; first += steps * 32) {
    EntryBits found[steps];
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int tile = first + step * 32 + lane;
      found[step] = tile < across ? entries[tile] : bits_of(TileEntry{0, empty_tile, 0});
    }
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int mask = mask_of(found[step]);
      const bool listed = mask != empty_tile;
      const unsigned int visited = __ballot_sync(0xffffffffu, listed);
      const unsigned int full = __ballot_sync(0xffffffffu, mask == full_tile);
      if (listed) entries[totals.count + __popc(visited & lanes_before)] = found[step];
      totals.count += __popc(visited);
      totals.cost += __popc(full) * full_tile_cost + __popc(visited & ~full) * partial_tile_cost;
    }
  }
  return totals;
}

/// By the whole block; every tile of the group's rows is settled, and this block knows of it.
__device__ __forceinline__ void list_group(const AttentionParameters& p, const TileGrid& grid, const RowGroup& group) {
  const TilePlanArguments& plan = group.by_key ? p.by_key : p.by_query;
  const int rows = group.by_key ? grid.key_tiles : grid.query_tiles;
  const int across = group.by_key ? grid.query_tiles : grid.key_tiles;
  const int row = group.number * patch_side + static_cast<int>(threadIdx.x) / 32;
  const long long first_row = static_cast<long long>(group.list) * rows;
  int* const order = plan.order + first_row;
  if (row < rows) {
    const long long first_entry = (first_row + row) * across;
    const RowTotals totals = compact_row(reinterpret_cast<EntryBits*>(plan.entries + first_entry), across);
    if (threadIdx.x % 32 == 0) {
      plan.counts[first_row + row] = totals.count;
      order[row] = totals.cost;
    }
  }
  // The block that lists a list's last group finds the costs of all its rows written.
  __syncthreads();
  bool is_last = false;
  if (threadIdx.x == 0) {
    int* const listed = p.scratch.groups_listed + (group.by_key ? grid.lists : 0) + group.list;
    is_last = add_release_acquire(listed, 1) == (rows + patch_side - 1) / patch_side;
  }
  if (__syncthreads_or(static_cast<int>(is_last)) != 0) {
    order_rows(order, rows, order_of_rows(group.by_key));
  }
}

}  // namespace flashspan_device
