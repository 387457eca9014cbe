// classify.cuh -- the planner's first half: interval analysis of every tile. What a lookup can give over a row or a
// column of tiles is found once for a patch of tiles, so that a tile itself costs one thread a few comparisons.
#pragma once

#include "generated/mask_program.cuh"
#include "plan/tile_grid.cuh"
#include "plan/work_shares.cuh"

namespace flashspan_device {

/// A shared array holds at least one element.
template <int count>
constexpr int held = count > 0 ? count : 1;

/// Ranges of the lookups of a patch: of its rows of tiles, and of its columns of tiles.
struct PatchRanges {
  Interval rows[patch_side][held<MaskProgram::row_lookups>];
  Interval columns[patch_side][held<MaskProgram::column_lookups>];

  /// A warp for each row and each column; a block barrier has to follow.
  __device__ __forceinline__ void find(const TileGrid& grid, const ProgramArguments& mask, const TilePlace& first) {
    static_assert(patch_side == plan_threads / 32, "a row and a column for each warp");
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const Interval b = single(grid.batch_of(first.list));
    const Interval h = single(grid.head_of(first.list));
    const TilePlace row = {first.list, first.query_tile + warp, first.key_tile};
    find_side<MaskProgram::row_lookups>(rows[warp], grid, row, [&](Interval* found, const TileExtent& at) {
      MaskProgram::analyse_row(mask, found, b, h, Interval{at.first_q, at.first_q + at.rows - 1}, grid.q_len,
                               grid.kv_len);
    });
    const TilePlace column = {first.list, first.query_tile, first.key_tile + warp};
    find_side<MaskProgram::column_lookups>(columns[warp], grid, column, [&](Interval* found, const TileExtent& at) {
      MaskProgram::analyse_column(mask, found, b, h, Interval{at.first_k, at.first_k + at.columns - 1}, grid.q_len,
                                  grid.kv_len);
    });
  }

 private:
  /// By a warp. `analyse` finds the ranges of so many lookups.
  template <int lookups, typename Analyse>
  __device__ static __forceinline__ void find_side(Interval (&side)[held<lookups>], const TileGrid& grid,
                                                   const TilePlace& place, const Analyse& analyse) {
    if (lookups == 0 || !grid.holds(place)) return;
    Interval found[held<lookups>];
    analyse(found, grid.extent(place));
    for (int n = 0; n < lookups; ++n) {
      if (threadIdx.x % 32 == 0) side[n] = found[n];
    }
  }
};

/// By one thread, or by a warp together if the program has lookups by tile.
__device__ __forceinline__ TileClass classify_tile(const TileGrid& grid, const ProgramArguments& mask,
                                                   const PatchRanges& ranges, const TilePlace& first, int i) {
  const TilePlace place = TileGrid::tile_of_patch(first, i);
  const TileExtent at = grid.extent(place);
  return MaskProgram::classify(mask, ranges.rows[i / patch_side], ranges.columns[i % patch_side],
                               single(grid.batch_of(place.list)), single(grid.head_of(place.list)),
                               Interval{at.first_q, at.first_q + at.rows - 1},
                               Interval{at.first_k, at.first_k + at.columns - 1}, grid.q_len, grid.kv_len);
}

/// By the whole block, which has passed a barrier since the last patch. Settles the tiles that the analysis decides and
/// marks the others in scratch.undecided.
__device__ __forceinline__ void classify_patch(const AttentionParameters& p, const TileGrid& grid,
                                               const ProgramArguments& mask, int patch) {
  __shared__ PatchRanges ranges;
  __shared__ TileClass classes[patch_tiles];
  const int thread = static_cast<int>(threadIdx.x);
  const TilePlace first = grid.first_tile(patch);
  ranges.find(grid, mask, first);
  __syncthreads();
  if constexpr (MaskProgram::lookups_by_tile) {
    for (int i = thread / 32; i < patch_tiles; i += plan_threads / 32) {
      if (!grid.holds(TileGrid::tile_of_patch(first, i))) continue;
      const TileClass found = classify_tile(grid, mask, ranges, first, i);
      if (thread % 32 == 0) classes[i] = found;
    }
    __syncthreads();
  }
  if (thread >= patch_tiles) return;
  const TilePlace place = TileGrid::tile_of_patch(first, thread);
  bool undecided = false;
  if (grid.holds(place)) {
    TileClass found;
    if constexpr (MaskProgram::lookups_by_tile) {
      found = classes[thread];
    } else {
      found = classify_tile(grid, mask, ranges, first, thread);
    }
    undecided = found == TileClass::partial;
    if (!undecided) settle(p, grid, place, found == TileClass::full ? full_tile : empty_tile, 0);
  }
  const unsigned int word = __ballot_sync(0xffffffffu, undecided);
  if (thread % 32 == 0) p.scratch.undecided[patch * words_per_patch + thread / 32] = word;
}

/// By every block of the grid. For a block that comes out of it, all tiles are classified and all counters are 0.
__device__ __forceinline__ void classify_tiles(const AttentionParameters& p, const TileGrid& grid,
                                               const ProgramArguments& mask) {
  __shared__ int share;
  const WorkShares shares = {p.scratch.shares, static_cast<int>(gridDim.x)};
  const bool first_thread = threadIdx.x == 0;
  if (first_thread) share = shares.first();
  __syncthreads();
  while (share < shares.count) {
    for (int i = share * plan_threads + static_cast<int>(threadIdx.x); i < p.scratch.counter_count;
         i += shares.count * plan_threads) {
      p.scratch.counters[i] = 0;
    }
    for (int patch = share; patch < grid.lists * grid.patches; patch += shares.count) {
      classify_patch(p, grid, mask, patch);
      __syncthreads();
    }
    __syncthreads();
    if (first_thread) share = shares.next();
    __syncthreads();
  }
  if (first_thread) shares.wait_for_all();
  __syncthreads();
}

}  // namespace flashspan_device
