// work.cuh -- what one block works on: its tensors' matrices, its tile list, and how scores become visible or hidden.
#pragma once

#include "attention/parameters.cuh"
#include "generated/kernel_spec.cuh"
#include "generated/mask_program.cuh"
#include "tile/non_finite.cuh"
#include "tile/products.cuh"
#include "tile/store.cuh"

namespace flashspan_device {

constexpr float log2_e = 1.4426950408889634f;
constexpr float natural_log_of_2 = 0.6931471805599453f;
// Scores are kept in base 2 where they are plain products, so that their scale takes the factor in. A modified score
// may be any float, and its product with log2(e) may overflow: there it stays natural and only differences take the
// factor.
constexpr float exponent_factor = has_score ? log2_e : 1.f;
constexpr float natural_per_score = has_score ? 1.f : natural_log_of_2;
constexpr float score_per_natural = has_score ? 1.f : log2_e;

constexpr int granule = 16;
constexpr int padded_qk = (head_dim_qk + granule - 1) / granule * granule;
constexpr int padded_v = (head_dim_v + granule - 1) / granule * granule;
constexpr int threads_per_block = num_warps * 32;

__device__ __forceinline__ float minus_infinity() { return __int_as_float(static_cast<int>(0xff800000u)); }

__device__ __forceinline__ float not_a_number() { return __int_as_float(0x7fffffff); }

/// First element of the [rows, head dim] matrix of one batch and head.
__device__ __forceinline__ unsigned short* matrix_of(const TensorArgument& tensor, int b, int head) {
  return static_cast<unsigned short*>(tensor.data) + b * tensor.stride_batch + head * tensor.stride_head;
}

/// [B, H, S] fp32 element.
__device__ __forceinline__ float* row_value(const TensorArgument& tensor, int b, int head, int row) {
  return static_cast<float*>(tensor.data) + b * tensor.stride_batch + head * tensor.stride_head +
         row * tensor.stride_row;
}

/// What a row's running softmax comes to.
struct RowEnd {
  float factor;  // of the products of its weights and values
  float lse;
};

/// From the running maximum, in natural units, and sum of a row; a sum of 0 is a row without weights. The head's sink
/// joins as one more column, which has no value; -inf is no sink. Where two infinities are equal, exp(inf - inf) is 1.
__device__ __forceinline__ RowEnd end_row(const AttentionParameters& p, int h, float maximum, float sum) {
  if (sum == 0.f) maximum = minus_infinity();
  float weight = 1.f;  // of the maximum
  if (p.sink.data != nullptr) {
    const float sink = *row_value(p.sink, 0, h, 0);
    if (sink != minus_infinity()) {
      const float smaller = maximum == sink ? 1.f : expf(-fabsf(maximum - sink));  // of the two, by the larger one
      weight = maximum >= sink ? 1.f : smaller;
      sum = sum * weight + (maximum >= sink ? smaller : 1.f);
      maximum = fmaxf(maximum, sink);
    }
  }
  if (sum == 0.f) return {0.f, minus_infinity()};
  return {weight * reciprocal_fast(sum), maximum + logf(sum)};
}

/// By all lanes of a warp: ends a lane's two rows, from `first_q` on eight apart, and writes the LSE of those that
/// there are. Four lanes share two rows, and have the same `maximum`, in natural units, and `sum` of each: every lane
/// ends one of them, so that what that takes stands once in the code. `factor`: of the products of their weights and
/// values.
__device__ __forceinline__ void end_rows(const AttentionParameters& p, int b, int h, int first_q,
                                         const float (&maximum)[2], const float (&sum)[2], float (&factor)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
  const bool lower = lane % 2 != 0;
  const RowEnd end = end_row(p, h, lower ? maximum[1] : maximum[0], lower ? sum[1] : sum[0]);
  const float other = __shfl_xor_sync(0xffffffffu, end.factor, 1);
  factor[0] = lower ? other : end.factor;
  factor[1] = lower ? end.factor : other;
  const int q = lower ? first_q + 8 : first_q;
  if (p.lse.data != nullptr && lane < 2 && q < p.q_len) *row_value(p.lse, b, h, q) = end.lse;
}

/// The tiles that one row of tiles visits, or a portion of them: of all tiles, or of a plan's list.
struct TileList {
  const TileEntry* entries;  // null: all
  int first;
  int count;

  __device__ __forceinline__ TileEntry entry(int i) const {
    if constexpr (!has_plan) return {first + i, full_tile, 0};
    return entries[first + i];
  }
};

__device__ __forceinline__ TileList tile_list(const TilePlanArguments& plan, int b, int h, int row, int rows,
                                              int across) {
  if constexpr (!has_plan) return {nullptr, 0, across};
  const int plan_b = plan.plan_batch == 1 ? 0 : b;
  const int plan_h = plan.plan_heads == 1 ? 0 : h;
  const long long list = (static_cast<long long>(plan_b) * plan.plan_heads + plan_h) * rows + row;
  return {plan.entries + list * across, 0, plan.counts[list]};
}

/// Where a warp's accumulator elements stand: element e of block n is (row + 8 (e / 2), column + 8 n + e % 2).
struct FragmentPlace {
  int row;
  int column;
  __device__ static FragmentPlace of_lane() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return {lane / 4, lane % 4 * 2};
  }
};

/// Coordinates of one call that mask and score programs read.
struct ProgramPoint {
  int b;
  int h;
  int q_len;
  int kv_len;
};

/// Which of a lane's elements of a warp's 16 x (8 blocks) are visible: bit 2 n + e for element e of block n, a word for
/// the lane's row and one for the row eight below.
struct VisibilityBits {
  u32 rows[2];

  /// `element` as in FragmentPlace.
  __device__ __forceinline__ bool test(int n, int element) const {
    return (rows[element / 2] >> (2 * n + element % 2) & 1u) != 0;
  }
};

__device__ __forceinline__ VisibilityBits all_visible() { return {{0xffffffffu, 0xffffffffu}}; }

/// visible(half, column) answers for the lane's row `half` (0, or 1: eight below) and the column `column` past its own
/// first. Not unrolled: a mask stands once in the code however many elements there are, and what depends on the row
/// alone is looked up once a row.
template <int blocks, typename Visible>
__device__ __forceinline__ VisibilityBits visibility_bits(const Visible& visible) {
  static_assert(blocks * 2 <= 32, "one word a row");
  VisibilityBits bits = {{0, 0}};
#pragma unroll 1
  for (int half = 0; half < 2; ++half) {
    u32 row = 0;
#pragma unroll 1
    for (int n = 0; n < blocks; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (visible(half, n * 8 + e)) row |= 1u << (2 * n + e);
      }
    }
    if (half == 0) {
      bits.rows[0] = row;
    } else {
      bits.rows[1] = row;
    }
  }
  return bits;
}

/// The same from the bit tile `slot` of a plan: the lane's row is `row` of the tile, its first block starts at column
/// `first_column`.
__device__ __forceinline__ VisibilityBits visibility_of_slot(const TilePlanArguments& plan, int slot, int row,
                                                             int first_column) {
  constexpr long long words_per_row = 4;
  const long long first = (static_cast<long long>(slot) * block_m + row) * words_per_row + threadIdx.x % 4;
  const int first_bit = first_column / 4;
  return {{plan.bits[first] >> first_bit, plan.bits[first + 8 * words_per_row] >> first_bit}};
}

}  // namespace flashspan_device
