// backward_mma.cuh -- backward attention with mma.sync, without atomics: one kernel per query tile for dQ, one per key
// tile for dK and dV, each recomputing the weights from LSE (FlashAttention-2, arXiv 2307.08691, algorithm 2, in two
// passes so that every sum has a fixed order).
//
// Each warp owns 16 rows of its block's tile and one of `column_groups` groups of the result's columns; warps of one
// row and different groups recompute the same weights. Weights are made in strips of columns.
#pragma once

#include "attention/backward_rows.cuh"
#include "attention/backward_sink.cuh"
#include "attention/work.cuh"

namespace flashspan_device {

// dK and dV together hold more registers than dQ, so their strips are narrower.
constexpr int dq_strip = 32;
constexpr int dkdv_strip = 16;
constexpr int row_groups = num_warps / column_groups;
static_assert(block_m == row_groups * 16 && block_n == row_groups * 16, "each warp owns 16 rows of either tile");
static_assert(block_n % dq_strip == 0 && block_m % dkdv_strip == 0, "a tile is whole strips");

/// Columns of a result that one group owns: whole pairs of blocks.
template <int padded>
constexpr int group_columns = (padded / 16 + column_groups - 1) / column_groups * 16;
template <int padded>
constexpr int group_blocks = group_columns<padded> / 8;

constexpr int query_elements = block_m * row_pitch<padded_qk>;
constexpr int out_gradient_elements = block_m * row_pitch<padded_v>;
constexpr int key_elements = block_n * row_pitch<padded_qk>;
constexpr int value_elements = block_n * row_pitch<padded_v>;
// Behind the tiles: LSE and delta of the query rows, and what a key adds to dS.
constexpr int backward_shared_bytes =
    (query_elements + out_gradient_elements + key_elements + value_elements) * bytes_per_element +
    (2 * block_m + block_n) * 4;
static_assert(backward_shared_bytes == shared_bytes, "host and device count the same shared memory");

struct BackwardTiles {
  unsigned short* query;
  unsigned short* out_gradient;
  unsigned short* key;
  unsigned short* value;
  float* lse;  // in units of scores (work.cuh)
  float* delta;
  float* key_poison;  // NaN for a key that holds a non-finite element, else 0; used by partial tiles only

  __device__ explicit BackwardTiles(unsigned short* shared) {
    query = shared;
    out_gradient = query + query_elements;
    key = out_gradient + out_gradient_elements;
    value = key + key_elements;
    lse = reinterpret_cast<float*>(value + value_elements);
    delta = lse + block_m;
    key_poison = delta + block_m;
  }

  __device__ __forceinline__ void fill_query_side(const AttentionParameters& p, int b, int h, int first_q) const {
    fill_tile<block_m, padded_qk, head_dim_qk, aligned, threads_per_block>(query, matrix_of(p.query, b, h),
                                                                           p.query.stride_row, first_q, p.q_len);
    fill_tile<block_m, padded_v, head_dim_v, aligned, threads_per_block>(out_gradient, matrix_of(p.out_gradient, b, h),
                                                                         p.out_gradient.stride_row, first_q, p.q_len);
    for (int row = static_cast<int>(threadIdx.x); row < block_m; row += threads_per_block) {
      const int q = first_q + row;
      const bool inside = q < p.q_len;
      const float row_lse = inside ? *row_value(p.lse, b, h, q) : minus_infinity();
      // A row that saw nothing, or lies outside, gets weight exp2(s - inf) = 0.
      lse[row] = row_lse == minus_infinity() ? -minus_infinity() : row_lse * score_per_natural;
      delta[row] = inside ? p.delta[(static_cast<long long>(b) * p.query_heads + h) * p.q_len + q] : 0.f;
    }
  }

  __device__ __forceinline__ void fill_key_side(const AttentionParameters& p, int b, int kv_head, int first_k) const {
    fill_tile<block_n, padded_qk, head_dim_qk, aligned, threads_per_block>(key, matrix_of(p.key, b, kv_head),
                                                                           p.key.stride_row, first_k, p.kv_len);
    fill_tile<block_n, padded_v, head_dim_v, aligned, threads_per_block>(value, matrix_of(p.value, b, kv_head),
                                                                         p.value.stride_row, first_k, p.kv_len);
  }
};

/// One element: from raw score and dP to weight P and dS (without the factor scale, which the epilogue applies).
struct WeightAndGradient {
  float weight;
  float gradient;
};

__device__ __forceinline__ WeightAndGradient weigh(const ProgramArguments& score, const ProgramPoint& point,
                                                   float scale, int q, int k, float raw, float weight_gradient,
                                                   float lse, float delta) {
  const float natural = raw * scale;
  float modified = natural;
  float slope = 1.f;
  if constexpr (has_score) {
    modified = MaskProgram::score(score, point.b, point.h, q, k, point.q_len, point.kv_len, natural);
    slope = MaskProgram::score_gradient(score, point.b, point.h, q, k, point.q_len, point.kv_len, natural);
  }
  const float weight = exp2_fast((modified * score_per_natural - lse) * exponent_factor);
  return {weight, weight * (weight_gradient - delta) * slope};
}

/// Columns [first, first + group) of a gradient's rows first_row, first_row + 8, times `factor`.
template <int blocks>
__device__ __forceinline__ void store_gradient(const TensorArgument& tensor, int b, int head,
                                               const float (&gradient)[blocks][4], float factor, int first_row,
                                               int length, int first_column, int head_dim) {
  unsigned short* const matrix = matrix_of(tensor, b, head);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + 8 * half;
    const int first = 2 * half;
    if (row >= length) continue;
#pragma unroll
    for (int n = 0; n < blocks; ++n) {
      const int d = first_column + n * 8;
      if (d >= head_dim) continue;
      store_pair<is_bf16, aligned>(matrix + row * tensor.stride_row + d, gradient[n][first] * factor,
                                   gradient[n][first + 1] * factor);
    }
  }
}

}  // namespace flashspan_device

extern "C" __global__ void __launch_bounds__(flashspan_device::threads_per_block, 1)
    attention_backward_dq(const __grid_constant__ flashspan_device::AttentionParameters p,
                          const __grid_constant__ flashspan_device::ProgramArguments mask,
                          const __grid_constant__ flashspan_device::ProgramArguments score) {
  using namespace flashspan_device;
  extern __shared__ __align__(16) unsigned short shared[];
  __shared__ RowFlags<block_n> flagged_keys;
  flagged_keys.clear();
  const BackwardTiles tiles(shared);
  const int query_tiles = (p.q_len + block_m - 1) / block_m;
  const int key_tiles = (p.kv_len + block_n - 1) / block_n;
  const int query_tile = query_tiles - 1 - static_cast<int>(blockIdx.x) % query_tiles;
  const int head_and_batch = static_cast<int>(blockIdx.x) / query_tiles;
  const int h = head_and_batch % p.query_heads;
  const int b = head_and_batch / p.query_heads;
  const int kv_head = h / (p.query_heads / p.kv_heads);
  const TileList list = tile_list(p.by_query, b, h, query_tile, query_tiles, key_tiles);

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp % row_groups * 16;
  const int first_column = warp / row_groups * group_columns<padded_qk>;
  const FragmentPlace place = FragmentPlace::of_lane();
  const int first_q = query_tile * block_m + warp_row + place.row;
  const ProgramPoint point = {b, h, p.q_len, p.kv_len};
  constexpr int blocks = group_blocks<padded_qk>;
  constexpr int dq_blocks = dq_strip / 8;
  float query_gradient[blocks][4] = {};

  if (list.count > 0) tiles.fill_query_side(p, b, h, query_tile * block_m);
  for (int i = 0; i < list.count; ++i) {
    const TileEntry entry = list.entry(i);
    const int tile_first_k = entry.tile * block_n;
    const bool partial = entry.mask != full_tile;
    tiles.fill_key_side(p, b, kv_head, tile_first_k);
    close_copy_group();
    wait_for_copies<0>();
    __syncthreads();
    if (partial) {
      // Scores of a flagged key become NaN, here through dS, so that taking its elements out loses nothing.
      take_non_finite_out<is_bf16, block_n, padded_qk, threads_per_block>(tiles.key, &flagged_keys);
      for (int row = static_cast<int>(threadIdx.x); row < block_n; row += threads_per_block) {
        tiles.key_poison[row] = flagged_keys.test(row) ? not_a_number() : 0.f;
      }
      __syncthreads();
      flagged_keys.clear();
    }
    const bool tail = tile_first_k + block_n > p.kv_len;
#pragma unroll 1
    for (int strip = 0; strip < block_n; strip += dq_strip) {
      float scores[dq_blocks][4];
      float gradients[dq_blocks][4];
      multiply_rows<is_bf16, dq_blocks, padded_qk>(scores, tiles.query, warp_row, tiles.key, strip);
      multiply_rows<is_bf16, dq_blocks, padded_v>(gradients, tiles.out_gradient, warp_row, tiles.value, strip);
      VisibilityBits bits = all_visible();
      if (entry.mask >= 0) {
        bits = visibility_of_slot(p.by_query, entry.mask, warp_row + place.row, strip);
      } else if (partial) {
        bits = visibility_bits<dq_blocks>([&](int half, int column) {
          return MaskProgram::visible(mask, b, h, first_q + 8 * half, tile_first_k + strip + place.column + column,
                                      p.q_len, p.kv_len);
        });
      }
#pragma unroll
      for (int n = 0; n < dq_blocks; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = warp_row + place.row + e / 2 * 8;
          const int q = first_q + e / 2 * 8;
          const int k = tile_first_k + strip + place.column + n * 8 + e % 2;
          const bool visible = (!tail || k < p.kv_len) && bits.test(n, e);
          const WeightAndGradient result =
              weigh(score, point, p.scale, q, k, scores[n][e], gradients[n][e], tiles.lse[row], tiles.delta[row]);
          float gradient = result.gradient;
          if (partial) gradient += tiles.key_poison[k - tile_first_k];
          gradients[n][e] = visible ? gradient : 0.f;
        }
      }
      accumulate<is_bf16, dq_blocks, blocks, padded_qk>(query_gradient, gradients, tiles.key, strip, first_column);
    }
    __syncthreads();
  }
  store_gradient<blocks>(p.query_gradient, b, h, query_gradient, p.scale, first_q, p.q_len, first_column + place.column,
                         head_dim_qk);
}

extern "C" __global__ void __launch_bounds__(flashspan_device::threads_per_block, 1)
    attention_backward_dkdv(const __grid_constant__ flashspan_device::AttentionParameters p,
                            const __grid_constant__ flashspan_device::ProgramArguments mask,
                            const __grid_constant__ flashspan_device::ProgramArguments score) {
  using namespace flashspan_device;
  extern __shared__ __align__(16) unsigned short shared[];
  __shared__ RowFlags<block_m> flagged_queries;
  __shared__ RowFlags<block_m> flagged_out_gradients;
  flagged_queries.clear();
  flagged_out_gradients.clear();
  const BackwardTiles tiles(shared);
  const int query_tiles = (p.q_len + block_m - 1) / block_m;
  const int key_tiles = (p.kv_len + block_n - 1) / block_n;
  const int key_tile = static_cast<int>(blockIdx.x) % key_tiles;
  const int head_and_batch = static_cast<int>(blockIdx.x) / key_tiles;
  const int kv_head = head_and_batch % p.kv_heads;
  const int b = head_and_batch / p.kv_heads;
  const int group = p.query_heads / p.kv_heads;

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp % row_groups * 16;
  const int column_group = warp / row_groups;
  const FragmentPlace place = FragmentPlace::of_lane();
  const int first_k = key_tile * block_n + warp_row + place.row;
  constexpr int dkdv_blocks = dkdv_strip / 8;
  constexpr int key_blocks = group_blocks<padded_qk>;
  constexpr int value_blocks = group_blocks<padded_v>;
  const int first_key_column = column_group * group_columns<padded_qk>;
  const int first_value_column = column_group * group_columns<padded_v>;
  float key_gradient[key_blocks][4] = {};
  float value_gradient[value_blocks][4] = {};
  bool non_finite_out_gradients = false;  // taken out of a partial tile; to be added in the end

  tiles.fill_key_side(p, b, kv_head, key_tile * block_n);
  for (int h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const TileList list = tile_list(p.by_key, b, h, key_tile, key_tiles, query_tiles);
    const ProgramPoint point = {b, h, p.q_len, p.kv_len};
    for (int i = 0; i < list.count; ++i) {
      const TileEntry entry = list.entry(i);
      const int tile_first_q = entry.tile * block_m;
      const bool partial = entry.mask != full_tile;
      tiles.fill_query_side(p, b, h, tile_first_q);
      close_copy_group();
      wait_for_copies<0>();
      __syncthreads();
      if (partial) {
        // A flagged query row has NaN weights, a flagged row of dO has NaN dS: through LSE and delta.
        take_non_finite_out<is_bf16, block_m, padded_qk, threads_per_block>(tiles.query, &flagged_queries);
        const bool found = take_non_finite_out<is_bf16, block_m, padded_v, threads_per_block>(tiles.out_gradient,
                                                                                              &flagged_out_gradients);
        non_finite_out_gradients = non_finite_out_gradients || found;
        for (int row = static_cast<int>(threadIdx.x); row < block_m; row += threads_per_block) {
          if (flagged_queries.test(row)) tiles.lse[row] = not_a_number();
          if (flagged_out_gradients.test(row)) tiles.delta[row] = not_a_number();
        }
        __syncthreads();
        flagged_queries.clear();
        flagged_out_gradients.clear();
      }
#pragma unroll 1
      for (int strip = 0; strip < block_m; strip += dkdv_strip) {
        float weights[dkdv_blocks][4];
        float gradients[dkdv_blocks][4];
        multiply_rows<is_bf16, dkdv_blocks, padded_qk>(weights, tiles.key, warp_row, tiles.query, strip);
        multiply_rows<is_bf16, dkdv_blocks, padded_v>(gradients, tiles.value, warp_row, tiles.out_gradient, strip);
        VisibilityBits bits = all_visible();
        if (partial) {
          bits = visibility_bits<dkdv_blocks>([&](int half, int column) {
            return MaskProgram::visible(mask, b, h, tile_first_q + strip + place.column + column, first_k + 8 * half,
                                        p.q_len, p.kv_len);
          });
        }
#pragma unroll
        for (int n = 0; n < dkdv_blocks; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int row = strip + place.column + n * 8 + e % 2;
            const int q = tile_first_q + row;
            const int k = first_k + e / 2 * 8;
            const bool visible = q < p.q_len && bits.test(n, e);
            const WeightAndGradient result =
                weigh(score, point, p.scale, q, k, weights[n][e], gradients[n][e], tiles.lse[row], tiles.delta[row]);
            weights[n][e] = visible ? result.weight : 0.f;
            gradients[n][e] = visible ? result.gradient : 0.f;
          }
        }
        accumulate<is_bf16, dkdv_blocks, value_blocks, padded_v>(value_gradient, weights, tiles.out_gradient, strip,
                                                                 first_value_column);
        accumulate<is_bf16, dkdv_blocks, key_blocks, padded_qk>(key_gradient, gradients, tiles.query, strip,
                                                                first_key_column);
      }
      __syncthreads();
    }
  }
  wait_for_copies<0>();
  store_gradient<key_blocks>(p.key_gradient, b, kv_head, key_gradient, p.scale, first_k, p.kv_len,
                             first_key_column + place.column, head_dim_qk);
  store_gradient<value_blocks>(p.value_gradient, b, kv_head, value_gradient, 1.f, first_k, p.kv_len,
                               first_value_column + place.column, head_dim_v);
  if (!non_finite_out_gradients) return;
  __syncthreads();
  const int first_row = key_tile * block_n;
  const GlobalRows<unsigned short> results = {
      matrix_of(p.value_gradient, b, kv_head) + first_row * p.value_gradient.stride_row, p.value_gradient.stride_row,
      p.kv_len - first_row < block_n ? p.kv_len - first_row : block_n};
  for (int h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const TileList list = tile_list(p.by_key, b, h, key_tile, key_tiles, query_tiles);
    for (int i = 0; i < list.count; ++i) {
      const TileEntry entry = list.entry(i);
      if (entry.mask == full_tile) continue;
      const int first_q = entry.tile * block_m;
      const GlobalRows<const unsigned short> out_gradients = {
          matrix_of(p.out_gradient, b, h) + first_q * p.out_gradient.stride_row, p.out_gradient.stride_row,
          p.q_len - first_q < block_m ? p.q_len - first_q : block_m};
      add_visible_non_finite<is_bf16, threads_per_block>(
          results, out_gradients, head_dim_v, [&](int row, int query_row) {
            return MaskProgram::visible(mask, b, h, first_q + query_row, first_row + row, p.q_len, p.kv_len);
          });
    }
  }
}
