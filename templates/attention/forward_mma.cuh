// forward_mma.cuh -- forward attention with mma.sync: one block per query tile, each warp owning 16 query rows, online
// softmax in base 2 (FlashAttention-2, arXiv 2307.08691, algorithm 1).
#pragma once

#include "attention/work.cuh"

namespace flashspan_device {

constexpr int score_blocks = block_n / 8;
constexpr int value_blocks = padded_v / 8;
static_assert(block_m == num_warps * 16, "each warp owns 16 query rows");

constexpr int query_tile_elements = block_m * row_pitch<padded_qk>;
constexpr int key_tile_elements = block_n * row_pitch<padded_qk>;
constexpr int value_tile_elements = block_n * row_pitch<padded_v>;
constexpr int stage_elements = key_tile_elements + value_tile_elements;
constexpr int forward_shared_bytes = (query_tile_elements + num_stages * stage_elements) * bytes_per_element;
static_assert(forward_shared_bytes == shared_bytes, "host and device count the same shared memory");

/// Where the keys, then the values, of the i-th tile of a list stand.
__device__ __forceinline__ int stage_offset(int i) { return i % num_stages * stage_elements; }

/// Scores of one warp's rows; hidden ones are -inf. `row` is the lane's row in the tile.
__device__ __forceinline__ void finish_scores(float (&scores)[score_blocks][4], const AttentionParameters& p,
                                              const ProgramArguments& mask, const ProgramArguments& score,
                                              const ProgramPoint& point, int row, int first_q, int first_k,
                                              int tile_mask, bool tail) {
  if constexpr (has_score) {
#pragma unroll
    for (int n = 0; n < score_blocks; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int q = first_q + e / 2 * 8;
        const int k = first_k + n * 8 + e % 2;
        scores[n][e] =
            MaskProgram::score(score, point.b, point.h, q, k, point.q_len, point.kv_len, scores[n][e] * p.scale);
      }
    }
  } else {
    const float factor = p.scale * score_per_natural;
#pragma unroll
    for (int n = 0; n < score_blocks; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[n][e] *= factor;
    }
  }
  if (tile_mask == full_tile && !tail) return;
  VisibilityBits bits = all_visible();
  if (tile_mask >= 0) {
    bits = visibility_of_slot(p.by_query, tile_mask, row, 0);
  } else if (tile_mask == evaluated_tile) {
    bits = visibility_bits<score_blocks>([&](int half, int column) {
      return MaskProgram::visible(mask, point.b, point.h, first_q + 8 * half, first_k + column, point.q_len,
                                  point.kv_len);
    });
  }
#pragma unroll
  for (int n = 0; n < score_blocks; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const bool visible = first_k + n * 8 + e % 2 < point.kv_len && bits.test(n, e);
      if (!visible) scores[n][e] = minus_infinity();
    }
  }
}

/// Running maximum, sum and output of a warp's rows; entry 0 is row `lane / 4`, entry 1 eight rows below.
struct OnlineSoftmax {
  float maximum[2];
  float sum[2];

  /// Turns scores into weights, rescaling what was accumulated. A row that has seen nothing yet has maximum -inf and
  /// subtracts 0 instead.
  __device__ __forceinline__ void update(float (&scores)[score_blocks][4], float (&out)[value_blocks][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first = 2 * half;  // elements first and first + 1 of every block stand in this row
      float highest = maximum[half];
#pragma unroll
      for (int n = 0; n < score_blocks; ++n) {
        highest = fmaxf(highest, fmaxf(scores[n][first], scores[n][first + 1]));
      }
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
      const float subtracted = highest == minus_infinity() ? 0.f : highest;
      const float rescale = exp2_fast((maximum[half] - subtracted) * exponent_factor);
      maximum[half] = highest;
      sum[half] *= rescale;
#pragma unroll
      for (int n = 0; n < score_blocks; ++n) {
#pragma unroll
        for (int e = first; e < first + 2; ++e) {
          scores[n][e] = exp2_fast((scores[n][e] - subtracted) * exponent_factor);
          sum[half] += scores[n][e];
        }
      }
#pragma unroll
      for (int n = 0; n < value_blocks; ++n) {
        out[n][first] *= rescale;
        out[n][first + 1] *= rescale;
      }
    }
  }

  /// Sums of the four lanes that share a row.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
    }
  }
};

}  // namespace flashspan_device

extern "C" __global__ void __launch_bounds__(flashspan_device::threads_per_block, 1)
    attention_forward(const __grid_constant__ flashspan_device::AttentionParameters p,
                      const __grid_constant__ flashspan_device::ProgramArguments mask,
                      const __grid_constant__ flashspan_device::ProgramArguments score) {
  using namespace flashspan_device;
  extern __shared__ __align__(16) unsigned short shared[];
  const int query_tiles = (p.q_len + block_m - 1) / block_m;
  const int key_tiles = (p.kv_len + block_n - 1) / block_n;
  // The last query tile first: under causal masks it is the longest.
  const int query_tile = query_tiles - 1 - static_cast<int>(blockIdx.x) % query_tiles;
  const int head_and_batch = static_cast<int>(blockIdx.x) / query_tiles;
  const int h = head_and_batch % p.query_heads;
  const int b = head_and_batch / p.query_heads;
  const int kv_head = h / (p.query_heads / p.kv_heads);
  const TileList list = tile_list(p.by_query, b, h, query_tile, query_tiles, key_tiles);

  unsigned short* const query_shared = shared;
  unsigned short* const stages = shared + query_tile_elements;
  const unsigned short* const key = matrix_of(p.key, b, kv_head);
  const unsigned short* const value = matrix_of(p.value, b, kv_head);
  const auto start_copies = [&](int i) {
    unsigned short* const stage = stages + stage_offset(i);
    const int first_k = list.entry(i).tile * block_n;
    fill_tile<block_n, padded_qk, head_dim_qk, aligned, threads_per_block>(stage, key, p.key.stride_row, first_k,
                                                                           p.kv_len);
    fill_tile<block_n, padded_v, head_dim_v, aligned, threads_per_block>(stage + key_tile_elements, value,
                                                                         p.value.stride_row, first_k, p.kv_len);
  };

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const FragmentPlace place = FragmentPlace::of_lane();
  const int first_q = query_tile * block_m + warp * 16 + place.row;
  const ProgramPoint point = {b, h, p.q_len, p.kv_len};
  float out[value_blocks][4] = {};
  bool non_finite_values = false;  // taken out of a partial tile; to be added in the end
  OnlineSoftmax softmax = {{minus_infinity(), minus_infinity()}, {0.f, 0.f}};

  if (list.count > 0) {
    fill_tile<block_m, padded_qk, head_dim_qk, aligned, threads_per_block>(
        query_shared, matrix_of(p.query, b, h), p.query.stride_row, query_tile * block_m, p.q_len);
  }
#pragma unroll
  for (int i = 0; i < num_stages - 1; ++i) {
    if (i < list.count) start_copies(i);
    close_copy_group();
  }
  for (int i = 0; i < list.count; ++i) {
    if constexpr (num_stages == 1) {
      start_copies(i);
      close_copy_group();
      wait_for_copies<0>();
      __syncthreads();
    } else {
      wait_for_copies<num_stages - 2>();
      __syncthreads();  // tile i has arrived for all, and all have left tile i - 1
      if (i + num_stages - 1 < list.count) start_copies(i + num_stages - 1);
      close_copy_group();
    }
    unsigned short* const key_shared = stages + stage_offset(i);
    unsigned short* const value_shared = key_shared + key_tile_elements;
    const TileEntry entry = list.entry(i);
    const int tile_first_k = entry.tile * block_n;

    float scores[score_blocks][4];
    multiply_rows<is_bf16, score_blocks, padded_qk>(scores, query_shared, warp * 16, key_shared, 0);
    finish_scores(scores, p, mask, score, point, warp * 16 + place.row, first_q, tile_first_k + place.column,
                  entry.mask, tile_first_k + block_n > p.kv_len);
    softmax.update(scores, out);
    if (entry.mask != full_tile) {
      const bool found = take_non_finite_out<is_bf16, block_n, padded_v, threads_per_block>(value_shared, nullptr);
      non_finite_values = non_finite_values || found;
    }
    accumulate<is_bf16, score_blocks, value_blocks, padded_v>(out, scores, value_shared, 0, 0);
    if constexpr (num_stages == 1) __syncthreads();
  }
  wait_for_copies<0>();

  softmax.finish();
  const float maximum[2] = {softmax.maximum[0] * natural_per_score, softmax.maximum[1] * natural_per_score};
  float factor[2];
  end_rows(p, b, h, first_q, maximum, softmax.sum, factor);
  unsigned short* const out_matrix = matrix_of(p.out, b, h);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int q = first_q + 8 * half;
    const int first = 2 * half;
    if (q >= p.q_len) continue;
    const bool saw_nothing = softmax.sum[half] == 0.f;
#pragma unroll
    for (int n = 0; n < value_blocks; ++n) {
      const int d = n * 8 + place.column;
      if (d >= head_dim_v) continue;
      const float low = saw_nothing ? 0.f : out[n][first];
      const float high = saw_nothing ? 0.f : out[n][first + 1];
      store_pair<is_bf16, aligned>(out_matrix + q * p.out.stride_row + d, low * factor[half], high * factor[half]);
    }
  }
  if (!non_finite_values) return;
  __syncthreads();
  const int first_row = query_tile * block_m;
  const GlobalRows<unsigned short> results = {out_matrix + first_row * p.out.stride_row, p.out.stride_row,
                                              p.q_len - first_row < block_m ? p.q_len - first_row : block_m};
  for (int i = 0; i < list.count; ++i) {
    const TileEntry entry = list.entry(i);
    if (entry.mask == full_tile) continue;
    const int first_k = entry.tile * block_n;
    const GlobalRows<const unsigned short> values = {value + first_k * p.value.stride_row, p.value.stride_row,
                                                     p.kv_len - first_k < block_n ? p.kv_len - first_k : block_n};
    add_visible_non_finite<is_bf16, threads_per_block>(results, values, head_dim_v, [&](int row, int key_row) {
      return MaskProgram::visible(mask, b, h, first_row + row, first_k + key_row, p.q_len, p.kv_len);
    });
  }
}
