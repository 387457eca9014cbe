// plan_tiles.cuh -- which tiles hold a visible pair, listed per row of tiles: interval analysis first, exact
// evaluation of what it leaves open.
#pragma once

#include "attention/parameters.cuh"
#include "generated/kernel_spec.cuh"
#include "generated/mask_program.cuh"
#include "mask/interval.cuh"

namespace flashspan_device {

/// Exact class of one tile of `rows` x `columns` pairs, found by the 32 lanes of a warp together.
__device__ inline TileClass evaluate_tile(const ProgramArguments& mask, int b, int h, int first_q, int rows,
                                          int first_k, int columns, int q_len, int kv_len) {
  bool visible_found = false;
  bool hidden_found = false;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = 0; row < rows; ++row) {
    for (int column = lane; column < columns; column += 32) {
      const bool visible = MaskProgram::visible(mask, b, h, first_q + row, first_k + column, q_len, kv_len);
      visible_found = visible_found || visible;
      hidden_found = hidden_found || !visible;
    }
    if (row % 8 == 7 && __any_sync(0xffffffffu, visible_found) && __any_sync(0xffffffffu, hidden_found)) break;
  }
  if (!__any_sync(0xffffffffu, visible_found)) return TileClass::empty;
  return __any_sync(0xffffffffu, hidden_found) ? TileClass::partial : TileClass::full;
}

__device__ inline TileClass classify_tile(const AttentionParameters& p, const ProgramArguments& mask, int b, int h,
                                          int query_tile, int key_tile) {
  const int first_q = query_tile * block_m;
  const int first_k = key_tile * block_n;
  const int rows = p.q_len - first_q < block_m ? p.q_len - first_q : block_m;
  const int columns = p.kv_len - first_k < block_n ? p.kv_len - first_k : block_n;
  const TileClass decided = MaskProgram::classify(mask, single(b), single(h), Interval{first_q, first_q + rows - 1},
                                                  Interval{first_k, first_k + columns - 1}, p.q_len, p.kv_len);
  if (decided != TileClass::partial) return decided;
  return evaluate_tile(mask, b, h, first_q, rows, first_k, columns, p.q_len, p.kv_len);
}

}  // namespace flashspan_device

/// One block per (batch, head, row of tiles) that the mask tells apart: by_key == 0 lists the key tiles of a row of
/// query tiles, by_key == 1 the query tiles of a column of key tiles. Lists ascend; partial_tile_bit marks partial
/// tiles.
extern "C" __global__ void __launch_bounds__(flashspan_device::plan_threads, 1)
    plan_tiles(const __grid_constant__ flashspan_device::AttentionParameters p,
               const __grid_constant__ flashspan_device::ProgramArguments mask,
               const __grid_constant__ flashspan_device::ProgramArguments score, int by_key) {
  using namespace flashspan_device;
  (void)score;
  constexpr int warps = plan_threads / 32;
  __shared__ int marks[warps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int query_tiles = (p.q_len + block_m - 1) / block_m;
  const int key_tiles = (p.kv_len + block_n - 1) / block_n;
  const TilePlanArguments& plan = by_key != 0 ? p.by_key : p.by_query;
  const int rows = by_key != 0 ? key_tiles : query_tiles;
  const int across = by_key != 0 ? query_tiles : key_tiles;
  const int row = static_cast<int>(blockIdx.x) % rows;
  const int list = static_cast<int>(blockIdx.x) / rows;
  const int h = list % plan.plan_heads;
  const int b = list / plan.plan_heads;
  int* const tiles = plan.tiles + static_cast<long long>(blockIdx.x) * across;
  int count = 0;
  for (int first = 0; first < across; first += warps) {
    // Each warp settles one tile: 0 empty, 1 full, 2 partial.
    const int tile = first + warp;
    int mark = 0;
    if (tile < across) {
      const TileClass kind =
          by_key != 0 ? classify_tile(p, mask, b, h, tile, row) : classify_tile(p, mask, b, h, row, tile);
      mark = kind == TileClass::empty ? 0 : kind == TileClass::full ? 1 : 2;
    }
    if (threadIdx.x % 32 == 0) marks[warp] = mark;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 0; i < warps; ++i) {
        if (marks[i] != 0) tiles[count++] = (first + i) | (marks[i] == 2 ? partial_tile_bit : 0);
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) plan.counts[blockIdx.x] = count;
}
