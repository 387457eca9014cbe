// classify.cuh -- the planner's first kernel: interval analysis of every tile. What a lookup can give over a row or a
// column of tiles is found once for a patch of tiles, so that a tile itself costs one thread a few comparisons.
#pragma once

#include "generated/mask_program.cuh"
#include "plan/tile_grid.cuh"

namespace flashspan_device {

/// A shared array holds at least one element.
template <int count>
constexpr int held = count > 0 ? count : 1;

/// Ranges of the lookups of a patch: of its rows of tiles, and of its columns of tiles.
struct PatchRanges {
  Interval rows[patch_side][held<MaskProgram::row_lookups>];
  Interval columns[patch_side][held<MaskProgram::column_lookups>];

  /// A warp for each row and column; a block barrier has to follow.
  __device__ __forceinline__ void find(const TileGrid& grid, const ProgramArguments& mask, const TilePlace& first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const Interval b = single(grid.batch_of(first.list));
    const Interval h = single(grid.head_of(first.list));
    for (int i = static_cast<int>(threadIdx.x) / 32; i < patch_side; i += plan_threads / 32) {
      const TilePlace row = {first.list, first.query_tile + i, first.key_tile};
      if (MaskProgram::row_lookups > 0 && grid.holds(row)) {
        const TileExtent at = grid.extent(row);
        Interval found[held<MaskProgram::row_lookups>];
        MaskProgram::analyse_row(mask, found, b, h, Interval{at.first_q, at.first_q + at.rows - 1}, grid.q_len,
                                 grid.kv_len);
        for (int n = 0; n < MaskProgram::row_lookups; ++n) {
          if (lane == 0) rows[i][n] = found[n];
        }
      }
      const TilePlace column = {first.list, first.query_tile, first.key_tile + i};
      if (MaskProgram::column_lookups > 0 && grid.holds(column)) {
        const TileExtent at = grid.extent(column);
        Interval found[held<MaskProgram::column_lookups>];
        MaskProgram::analyse_column(mask, found, b, h, Interval{at.first_k, at.first_k + at.columns - 1}, grid.q_len,
                                    grid.kv_len);
        for (int n = 0; n < MaskProgram::column_lookups; ++n) {
          if (lane == 0) columns[i][n] = found[n];
        }
      }
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

/// Counters of later kernels, which a workspace does not come with. By the whole grid: a list's first block clears the
/// list's.
__device__ __forceinline__ void clear_counters(const AttentionParameters& p, const TileGrid& grid) {
  const int block = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int blocks_per_list = grid.patches > 0 ? grid.patches : 1;
  if (block % blocks_per_list != 0) return;
  const int list = block / blocks_per_list;
  if (thread == 0) {
    if (block == 0) *p.scratch.slots_taken = 0;
    if (block == 0) *p.next_item = 0;
    p.scratch.groups_listed[list] = 0;
    p.scratch.groups_listed[grid.lists + list] = 0;
  }
  int* const open_tiles = p.scratch.open_tiles + static_cast<long long>(list) * grid.groups_per_list();
  for (int i = thread; i < grid.groups_per_list(); i += plan_threads) open_tiles[i] = 0;
}

}  // namespace flashspan_device

/// One block per patch of every list; one per list if there is no tile. Settles the tiles that the analysis decides and
/// marks the others in scratch.undecided.
extern "C" __global__ void __launch_bounds__(flashspan_device::plan_threads, 1)
    plan_classify(const __grid_constant__ flashspan_device::AttentionParameters p,
                  const __grid_constant__ flashspan_device::ProgramArguments mask) {
  using namespace flashspan_device;
  __shared__ PatchRanges ranges;
  __shared__ TileClass classes[patch_tiles];
  const TileGrid grid(p);
  const int thread = static_cast<int>(threadIdx.x);
  clear_counters(p, grid);
  if (grid.patches == 0) return;
  const TilePlace first = grid.first_tile(blockIdx.x);
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
  if (thread % 32 == 0) {
    p.scratch.undecided[static_cast<long long>(blockIdx.x) * words_per_patch + thread / 32] = word;
  }
}
