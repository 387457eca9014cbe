// backward_score.cuh -- gradients of the tensors that the score program looks up: the sum over all visible pairs of
// dS * d score / d value, where dS is the gradient of the modified score. A pass of its own over the tiles of either
// family's plan, with mma.sync: what it costs is mostly its additions, and the other kernels stay as they are.
//
// What a lookup's place does not depend on is summed first: over the keys of a row, the rows of a tile, or both, in
// registers; along a distance from query to key, in shared memory. Else every pair is an addition to global memory.
#pragma once

#include "attention/score_gradient_arguments.cuh"
#include "attention/work.cuh"
#include "generated/score_lookups.cuh"

namespace flashspan_device {

constexpr int score_sum_warps = block_m / 16;
constexpr int score_sum_threads = score_sum_warps * 32;
constexpr int score_sum_strip = 32;
constexpr int score_sum_blocks = score_sum_strip / 8;
static_assert(has_score && block_n % score_sum_strip == 0);

constexpr int distance_pitch = score_sum_strip + 1;
/// Distances of the pairs of a warp's 16 rows and a strip's columns.
constexpr int strip_distances = 16 + score_sum_strip - 1;

struct ScoreSumTiles {
  unsigned short* query;
  unsigned short* out_gradient;
  unsigned short* key;
  unsigned short* value;
  float* lse;
  float* delta;
  float* distances;

  static constexpr int query_elements = block_m * row_pitch<padded_qk>;
  static constexpr int out_gradient_elements = block_m * row_pitch<padded_v>;
  static constexpr int key_elements = block_n * row_pitch<padded_qk>;
  static constexpr int value_elements = block_n * row_pitch<padded_v>;
  static_assert((query_elements + out_gradient_elements + key_elements + value_elements) * bytes_per_element +
                        2 * block_m * 4 + score_lookups_by_distance * block_m * distance_pitch * 4 ==
                    score_gradient_shared_bytes,
                "host and device count the same shared memory");

  __device__ explicit ScoreSumTiles(unsigned short* shared) {
    query = shared;
    out_gradient = query + query_elements;
    key = out_gradient + out_gradient_elements;
    value = key + key_elements;
    lse = reinterpret_cast<float*>(value + value_elements);
    delta = lse + block_m;
    distances = delta + block_m;
  }

  __device__ __forceinline__ void fill_query_side(const AttentionParameters& p, int b, int h, int first_q) const {
    fill_tile<block_m, padded_qk, head_dim_qk, aligned, score_sum_threads>(query, matrix_of(p.query, b, h),
                                                                           p.query.stride_row, first_q, p.q_len);
    fill_tile<block_m, padded_v, head_dim_v, aligned, score_sum_threads>(out_gradient, matrix_of(p.out_gradient, b, h),
                                                                         p.out_gradient.stride_row, first_q, p.q_len);
    for (int row = static_cast<int>(threadIdx.x); row < block_m; row += score_sum_threads) {
      const int q = first_q + row;
      const bool inside = q < p.q_len;
      const float row_lse = inside ? *row_value(p.lse, b, h, q) : minus_infinity();
      // A row that saw nothing, or lies outside, gets weight exp2(s - inf) = 0.
      lse[row] = row_lse == minus_infinity() ? -minus_infinity() : row_lse;
      delta[row] = inside ? p.delta[(static_cast<long long>(b) * p.query_heads + h) * p.statistics_rows + q] : 0.f;
    }
  }

  __device__ __forceinline__ void fill_key_side(const AttentionParameters& p, int b, int kv_head, int first_k) const {
    fill_tile<block_n, padded_qk, head_dim_qk, aligned, score_sum_threads>(key, matrix_of(p.key, b, kv_head),
                                                                           p.key.stride_row, first_k, p.kv_len);
    fill_tile<block_n, padded_v, head_dim_v, aligned, score_sum_threads>(value, matrix_of(p.value, b, kv_head),
                                                                         p.value.stride_row, first_k, p.kv_len);
  }
};

// Bits of a sum that met an addend that is no number of finite units.
constexpr unsigned long long met_infinity = 1;
constexpr unsigned long long met_minus_infinity = 2;
constexpr unsigned long long met_not_a_number = 4;

__device__ __forceinline__ bool is_finite_bits(int magnitude_bits) { return magnitude_bits < 0x7f800000; }

/// Power of two of the unit of an element whose largest addend has these bits: addends have at most `sum_bits` bits.
__device__ __forceinline__ int unit_exponent(int magnitude_bits, int sum_bits) {
  constexpr int mantissa_bits = 23;
  constexpr int bias = 126;  // a number of biased exponent e is less than 2^(e - 126)
  const int exponent = magnitude_bits >> mantissa_bits;
  return (exponent == 0 ? 1 : exponent) - bias - sum_bits;
}

/// Takes one addend to its element; what is outside the tensor was not looked up and takes none.
template <int rank>
__device__ __forceinline__ void add_to_score_gradient(const ScoreGradientArguments& gradients, int which,
                                                      const Indices<rank>& indices, float addend) {
  const ScoreGradient& gradient = gradients.of[which];
  bool inside = addend != 0.f;
  int64 offset = 0;
  int64 number = 0;
#pragma unroll
  for (int axis = 0; axis < rank; ++axis) {
    const int64 index = indices.at[axis];
    inside = inside && index >= 0 && index < gradient.extent[axis];
    offset += index * gradient.stride[axis];
    number = number * gradient.extent[axis] + index;
  }
  if (!inside) return;
  float* const result = gradient.result + offset;
  if (gradients.run == ScoreGradientRun::add) {
    atomicAdd(result, addend);
    return;
  }
  // Magnitudes are ordered as their bits are, NaN above all.
  if (gradients.run == ScoreGradientRun::measure) {
    atomicMax(reinterpret_cast<int*>(result), __float_as_int(fabsf(addend)));
    return;
  }
  const int largest = __float_as_int(*result);
  if (is_finite_bits(largest)) {
    const auto units = llrint(ldexp(static_cast<double>(addend), -unit_exponent(largest, gradients.sum_bits)));
    atomicAdd(gradient.sums + number, static_cast<unsigned long long>(units));
  } else if (!is_finite_bits(__float_as_int(fabsf(addend)))) {
    atomicOr(gradient.sums + number, addend == -minus_infinity()  ? met_infinity
                                     : addend == minus_infinity() ? met_minus_infinity
                                                                  : met_not_a_number);
  }
}

/// Element `number` of a gradient, counted row by row.
__device__ __forceinline__ float* element_of(const ScoreGradient& gradient, int64 number) {
  int64 offset = 0;
  for (int axis = gradient.rank - 1; axis >= 0; --axis) {
    offset += number % gradient.extent[axis] * gradient.stride[axis];
    number /= gradient.extent[axis];
  }
  return gradient.result + offset;
}

/// Sum over lanes that differ in the bits of `distances`.
template <int first, int last>
__device__ __forceinline__ float sum_over_lanes(float value) {
#pragma unroll
  for (int distance = first; distance <= last; distance *= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

/// What a thread has summed in registers of the lookups whose place does not depend on everything.
struct LookupSums {
  static constexpr int count = score_lookups > 0 ? score_lookups : 1;
  float rows[count][2];     // without k: the lane's row and the one eight below; without q as well: the first alone
  float columns[count][2];  // with k, without q: the lane's two columns of a block
};

/// Takes the addends of one head's pairs to where its lookups looked. The functions go over the lookups from `i` on.
struct ScoreSum {
  const AttentionParameters& p;
  const ProgramArguments& score;
  const ScoreGradientArguments& gradients;
  int b;
  int h;
  float* distances;  // the warp's 16 rows of the first of its sums

  template <typename Lookup>
  __device__ __forceinline__ float* distances_of() const {
    return distances + Lookup::distance_sums * block_m * distance_pitch;
  }

  template <typename Lookup>
  __device__ __forceinline__ void add(int q, int k, float addend) const {
    add_to_score_gradient(gradients, Lookup::gradient, Lookup::indices(score, b, h, q, k, p.q_len, p.kv_len), addend);
  }

  /// One pair, `element` of a fragment's block that starts at `column` of its strip; `gradient` is that of the modified
  /// score.
  template <int i = 0>
  __device__ __forceinline__ void take(LookupSums& sums, int column, int element, int q, int k, bool visible,
                                       float natural, float gradient) const {
    if constexpr (i < score_lookups) {
      using Lookup = ScoreLookup<i>;
      const float slope = Lookup::slope(score, b, h, q, k, p.q_len, p.kv_len, natural);
      const float addend = visible ? gradient * slope : 0.f;
      if constexpr (Lookup::distance_sums >= 0) {
        const FragmentPlace place = FragmentPlace::of_lane();
        const int row = place.row + element / 2 * 8;
        distances_of<Lookup>()[row * distance_pitch + place.column + column + element % 2] = addend;
      } else if constexpr (Lookup::by_query && Lookup::by_key) {
        add<Lookup>(q, k, addend);
      } else if constexpr (Lookup::by_key) {
        sums.columns[i][element % 2] += addend;
      } else {
        sums.rows[i][Lookup::by_query ? element / 2 : 0] += addend;
      }
      take<i + 1>(sums, column, element, q, k, visible, natural, gradient);
    }
  }

  /// Adds up the columns of one block over the warp's rows, and starts anew. k: the lane's first.
  template <int i = 0>
  __device__ __forceinline__ void end_columns(LookupSums& sums, int k) const {
    if constexpr (i < score_lookups) {
      using Lookup = ScoreLookup<i>;
      if constexpr (Lookup::by_key && !Lookup::by_query) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float sum = sum_over_lanes<4, 16>(sums.columns[i][e]);
          sums.columns[i][e] = 0.f;
          if (threadIdx.x % 32 < 4) add<Lookup>(0, k + e, sum);
        }
      }
      end_columns<i + 1>(sums, k);
    }
  }

  /// Adds up a strip along its distances, once it is whole. q, k: the strip's first, the same in all lanes.
  template <int i = 0>
  __device__ __forceinline__ void end_strip(int q, int k) const {
    if constexpr (i < score_lookups) {
      using Lookup = ScoreLookup<i>;
      if constexpr (Lookup::distance_sums >= 0) {
        const float* const addends = distances_of<Lookup>();
        __syncwarp();
        for (int distance = static_cast<int>(threadIdx.x) % 32; distance < strip_distances; distance += 32) {
          // row - column is distance - (score_sum_strip - 1).
          float sum = 0.f;
#pragma unroll
          for (int row = 0; row < 16; ++row) {
            const int column = row + score_sum_strip - 1 - distance;
            if (column >= 0 && column < score_sum_strip) sum += addends[row * distance_pitch + column];
          }
          add<Lookup>(q + distance, k + score_sum_strip - 1, sum);
        }
        __syncwarp();
      }
      end_strip<i + 1>(q, k);
    }
  }

  /// Adds up the rows over the lanes that share them. q: the lane's first.
  template <int i = 0>
  __device__ __forceinline__ void end_rows(const LookupSums& sums, int q) const {
    if constexpr (i < score_lookups) {
      using Lookup = ScoreLookup<i>;
      if constexpr (!Lookup::by_key && Lookup::by_query) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float sum = sum_over_lanes<1, 2>(sums.rows[i][half]);
          if (threadIdx.x % 4 == 0) add<Lookup>(q + 8 * half, 0, sum);
        }
      } else if constexpr (!Lookup::by_key) {
        const float sum = sum_over_lanes<1, 16>(sums.rows[i][0]);
        if (threadIdx.x % 32 == 0) add<Lookup>(0, 0, sum);
      }
      end_rows<i + 1>(sums, q);
    }
  }
};

}  // namespace flashspan_device

/// Zeros for every result, and for every sum of the deterministic mode. Any number of blocks.
extern "C" __global__ void __launch_bounds__(flashspan_device::score_element_threads)
    attention_backward_score_clear(const __grid_constant__ flashspan_device::AttentionParameters p,
                                   const __grid_constant__ flashspan_device::ProgramArguments mask,
                                   const __grid_constant__ flashspan_device::ProgramArguments score,
                                   const __grid_constant__ flashspan_device::ScoreGradientArguments gradients) {
  using namespace flashspan_device;
  (void)p, (void)mask, (void)score;
  const int64 step = static_cast<int64>(gridDim.x) * score_element_threads;
  for (int which = 0; which < gradients.count; ++which) {
    const ScoreGradient& gradient = gradients.of[which];
    for (int64 i = static_cast<int64>(blockIdx.x) * score_element_threads + threadIdx.x; i < gradient.elements;
         i += step) {
      *element_of(gradient, i) = 0.f;
      if (gradient.sums != nullptr) gradient.sums[i] = 0;
    }
  }
}

/// One block a tile of queries.
extern "C" __global__ void __launch_bounds__(flashspan_device::score_sum_threads, 2)
    attention_backward_score_sum(const __grid_constant__ flashspan_device::AttentionParameters p,
                                 const __grid_constant__ flashspan_device::ProgramArguments mask,
                                 const __grid_constant__ flashspan_device::ProgramArguments score,
                                 const __grid_constant__ flashspan_device::ScoreGradientArguments gradients) {
  using namespace flashspan_device;
  extern __shared__ __align__(16) unsigned short score_sum_shared[];  // the name `shared` has a type in each family
  const ScoreSumTiles tiles(score_sum_shared);
  const int query_tiles = (p.q_len + block_m - 1) / block_m;
  const int key_tiles = (p.kv_len + block_n - 1) / block_n;
  const int query_tile = query_tiles - 1 - static_cast<int>(blockIdx.x) % query_tiles;
  const int head_and_batch = static_cast<int>(blockIdx.x) / query_tiles;
  const int h = head_and_batch % p.query_heads;
  const int b = head_and_batch / p.query_heads;
  const int kv_head = h / (p.query_heads / p.kv_heads);
  const TileList list = tile_list(p.by_query, b, h, query_tile, query_tiles, key_tiles);
  if (list.count == 0) return;

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
  const FragmentPlace place = FragmentPlace::of_lane();
  const int first_q = query_tile * block_m + warp_row + place.row;
  const int distances_of_warp = warp_row * distance_pitch;
  const ScoreSum sum = {p, score, gradients, b, h, tiles.distances + distances_of_warp};
  LookupSums sums = {};

  tiles.fill_query_side(p, b, h, query_tile * block_m);
  for (int i = 0; i < list.count; ++i) {
    const TileEntry entry = list.entry(i);
    const int tile_first_k = entry.tile * block_n;
    const bool partial = entry.mask != full_tile;
    tiles.fill_key_side(p, b, kv_head, tile_first_k);
    close_copy_group();
    wait_for_copies<0>();
    __syncthreads();
    const float lse[2] = {tiles.lse[warp_row + place.row], tiles.lse[warp_row + place.row + 8]};
    const float delta[2] = {tiles.delta[warp_row + place.row], tiles.delta[warp_row + place.row + 8]};
#pragma unroll 1
    for (int strip = 0; strip < block_n; strip += score_sum_strip) {
      float scores[score_sum_blocks][4];
      float weight_gradients[score_sum_blocks][4];
      multiply_rows<is_bf16, score_sum_blocks, padded_qk>(scores, tiles.query, warp_row, tiles.key, strip);
      multiply_rows<is_bf16, score_sum_blocks, padded_v>(weight_gradients, tiles.out_gradient, warp_row, tiles.value,
                                                         strip);
      const int first_k = tile_first_k + strip + place.column;
      VisibilityBits bits = all_visible();
      if (partial) {
        bits = visibility_bits<score_sum_blocks>([&](int half, int column) {
          return MaskProgram::visible(mask, b, h, first_q + 8 * half, first_k + column, p.q_len, p.kv_len);
        });
      }
#pragma unroll
      for (int n = 0; n < score_sum_blocks; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int half = e / 2;
          const int q = first_q + 8 * half;
          const int k = first_k + n * 8 + e % 2;
          const float natural = scores[n][e] * p.scale;
          const float modified = MaskProgram::score(score, b, h, q, k, p.q_len, p.kv_len, natural);
          const float weight = exp2_fast((modified - lse[half]) * exponent_factor);
          const bool visible = q < p.q_len && k < p.kv_len && bits.test(n, e);
          sum.take(sums, n * 8, e, q, k, visible, natural, weight * (weight_gradients[n][e] - delta[half]));
        }
        sum.end_columns(sums, first_k + n * 8);
      }
      sum.end_strip(query_tile * block_m + warp_row, tile_first_k + strip);
    }
    __syncthreads();
  }
  sum.end_rows(sums, first_q);
}

/// Sums of the deterministic mode become results. Any number of blocks.
extern "C" __global__ void __launch_bounds__(flashspan_device::score_element_threads)
    attention_backward_score_round(const __grid_constant__ flashspan_device::AttentionParameters p,
                                   const __grid_constant__ flashspan_device::ProgramArguments mask,
                                   const __grid_constant__ flashspan_device::ProgramArguments score,
                                   const __grid_constant__ flashspan_device::ScoreGradientArguments gradients) {
  using namespace flashspan_device;
  (void)p, (void)mask, (void)score;
  const int64 step = static_cast<int64>(gridDim.x) * score_element_threads;
  for (int which = 0; which < gradients.count; ++which) {
    const ScoreGradient& gradient = gradients.of[which];
    for (int64 i = static_cast<int64>(blockIdx.x) * score_element_threads + threadIdx.x; i < gradient.elements;
         i += step) {
      float* const result = element_of(gradient, i);
      const int largest = __float_as_int(*result);
      const unsigned long long sum = gradient.sums[i];
      if (is_finite_bits(largest)) {
        *result = static_cast<float>(
            ldexp(static_cast<double>(static_cast<int64>(sum)), unit_exponent(largest, gradients.sum_bits)));
      } else {
        *result = sum == met_infinity         ? -minus_infinity()
                  : sum == met_minus_infinity ? minus_infinity()
                                              : not_a_number();
      }
    }
  }
}
