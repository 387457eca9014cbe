// non_finite.cuh -- keeping NaN and infinity of hidden elements out of matrix products. The weight of a hidden element
// is 0, but 0 * NaN is NaN. So in a tile that hides something, non-finite elements are replaced by 0 and their rows are
// flagged; what a *visible* one does to a result is then added element by element. Rare, so written for size.
#pragma once

#include "ptx/convert.cuh"
#include "ptx/opaque.cuh"
#include "tile/shared_tile.cuh"

namespace flashspan_device {

template <bool is_bf16>
__device__ __forceinline__ bool is_finite(unsigned short bits) {
  constexpr int exponent = is_bf16 ? 0x7f80 : 0x7c00;
  return (bits & exponent) != exponent;
}

/// Rows of one tile, as bits; in shared memory.
template <int rows>
struct RowFlags {
  u32 words[(rows + 31) / 32];

  /// By all threads of the block; a block barrier has to follow.
  __device__ __forceinline__ void clear() {
    if (threadIdx.x < (rows + 31) / 32) words[threadIdx.x] = 0;
  }
  __device__ __forceinline__ void set(int row) { atomicOr(&words[row / 32], 1u << (row % 32)); }
  __device__ __forceinline__ bool test(int row) const { return (words[row / 32] >> (row % 32) & 1u) != 0; }
};

/// Eight elements, as one shared-memory access.
struct alignas(16) EightElements {
  u32 pairs[4];
};

/// The pair with its non-finite elements replaced by 0.
template <bool is_bf16>
__device__ __forceinline__ u32 finite_part(u32 pair) {
  const u32 low = is_finite<is_bf16>(static_cast<unsigned short>(pair & 0xffffu)) ? pair & 0xffffu : 0;
  const u32 high = is_finite<is_bf16>(static_cast<unsigned short>(pair >> 16)) ? pair & 0xffff0000u : 0;
  return low | high;
}

/// Replaces non-finite elements by 0. True if there were any.
template <bool is_bf16>
__device__ __forceinline__ bool take_non_finite_out(EightElements& elements) {
  u32 changed = 0;
#pragma unroll
  for (u32& pair : elements.pairs) {
    const u32 finite = finite_part<is_bf16>(pair);
    changed |= finite ^ pair;
    pair = finite;
  }
  return changed != 0;
}

/// Replaces the tile's non-finite elements by 0 and flags their rows, if flags are given. True in every thread if there
/// were any. A block barrier; the flags must have been cleared before an earlier one.
template <bool is_bf16, int rows, int columns, int threads>
__device__ __forceinline__ bool take_non_finite_out(unsigned short* tile, RowFlags<rows>* flags) {
  constexpr int per_row = columns / 8;
  bool found = false;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < rows * per_row; i += threads) {
    const int row = i / per_row;
    const int offset = row * row_pitch<columns> + i % per_row * 8;
    EightElements* const place = reinterpret_cast<EightElements*>(tile + offset);
    const EightElements elements = *place;
    EightElements finite{};
    u32 changed = 0;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      finite.pairs[pair] = finite_part<is_bf16>(elements.pairs[pair]);
      changed |= finite.pairs[pair] ^ elements.pairs[pair];
    }
    if (changed == 0) continue;
    *place = finite;
    if (flags != nullptr) flags->set(row);
    found = true;
  }
  return __syncthreads_or(found) != 0;
}

/// `rows` rows of a [.., head_dim] matrix in global memory.
template <typename Element>
struct GlobalRows {
  Element* first;
  long long stride_row;
  int rows;

  __device__ Element* at(int row, int column) const { return first + row * stride_row + column; }
};

/// Adds to every result row the non-finite elements of the source rows that it sees: what take_non_finite_out() took
/// from a product. By `threads` threads from a multiple of `threads` on, which have passed a barrier since the results
/// were written.
template <bool is_bf16, int threads, typename Visible>
__device__ inline void add_visible_non_finite(const GlobalRows<unsigned short>& result,
                                              const GlobalRows<const unsigned short>& source, int head_dim,
                                              const Visible& visible) {
#pragma unroll 1
  for (int i = computed_here(static_cast<int>(threadIdx.x)) % threads; i < result.rows * head_dim; i += threads) {
    const int row = i / head_dim;
    const int column = i % head_dim;
    unsigned short* const element = result.at(row, column);
    float sum = widen<is_bf16>(*element);
    bool changed = false;
#pragma unroll 1
    for (int source_row = 0; source_row < source.rows; ++source_row) {
      const unsigned short bits = *source.at(source_row, column);
      if (is_finite<is_bf16>(bits) || !visible(row, source_row)) continue;
      sum += widen<is_bf16>(bits);
      changed = true;
    }
    if (changed) *element = static_cast<unsigned short>(pack_pair<is_bf16>(sum, 0.f) & 0xffffu);
  }
}

}  // namespace flashspan_device
