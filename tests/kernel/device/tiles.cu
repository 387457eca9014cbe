// Tiles in shared memory and the products of fragments, against loops over the same numbers.
#include "check.cuh"
#include "tile/non_finite.cuh"
#include "tile/products.cuh"

using namespace flashspan_device;

constexpr int rows = 32;
constexpr int columns = 48;
constexpr int head_dim = 40;
constexpr int threads = 128;

/// Small integers: every product and sum is exact in either format.
__device__ int number(int row, int column, int seed) { return (row * 7 + column * 3 + seed) % 9 - 4; }

template <bool is_bf16>
__device__ float at(const unsigned short* tile, int row, int column) {
  return widen<is_bf16>(tile[row * row_pitch<columns> + column]);
}

template <bool is_bf16, bool aligned>
__device__ void check_products(Checks* checks, unsigned short* a, unsigned short* b, unsigned short* global) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int stride = aligned ? 64 : 61;
  for (int i = static_cast<int>(threadIdx.x); i < rows * stride; i += threads) {
    const float value = static_cast<float>(number(i / stride, i % stride, 5));
    global[i] = static_cast<unsigned short>(pack_pair<is_bf16>(value, 0.f) & 0xffffu);
  }
  for (int i = static_cast<int>(threadIdx.x); i < rows * row_pitch<columns>; i += threads) a[i] = b[i] = 0xffff;
  __syncthreads();
  constexpr int length = rows - 3;  // the last rows lie outside
  fill_tile<rows, columns, head_dim, aligned, threads>(a, global, stride, 0, length);
  fill_tile<rows, columns, head_dim, aligned, threads>(b, global, stride, 2, length);
  close_copy_group();
  wait_for_copies<0>();
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < rows * columns; i += threads) {
    const int row = i / columns;
    const int column = i % columns;
    const float first = row < length && column < head_dim ? static_cast<float>(number(row, column, 5)) : 0.f;
    const float second = row + 2 < length && column < head_dim ? static_cast<float>(number(row + 2, column, 5)) : 0.f;
    EXPECT(at<is_bf16>(a, row, column) == first);
    EXPECT(at<is_bf16>(b, row, column) == second);
  }
  // a[16 .. 32) * b^T over the columns.
  float scores[4][4];
  multiply_rows<is_bf16, 4, columns>(scores, a, 16, b, 0);
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = 16 + lane / 4 + e / 2 * 8;
      const int other = n * 8 + lane % 4 * 2 + e % 2;
      float expected = 0.f;
      for (int column = 0; column < columns; ++column)
        expected += at<is_bf16>(a, row, column) * at<is_bf16>(b, other, column);
      EXPECT(scores[n][e] == expected);
    }
  }
  // weights[16 x 32] * b[32 x 16 columns from 16]; weights small integers again.
  float weights[4][4];
#pragma unroll
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      weights[n][e] = static_cast<float>(number(lane / 4 + e / 2 * 8, n * 8 + lane % 4 * 2 + e % 2, 2));
    }
  }
  float result[2][4] = {};
  accumulate<is_bf16, 4, 2, columns>(result, weights, b, 0, 16);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float expected = 0.f;
      for (int k = 0; k < rows; ++k) {
        expected += static_cast<float>(number(lane / 4 + e / 2 * 8, k, 2)) *
                    at<is_bf16>(b, k, 16 + n * 8 + lane % 4 * 2 + e % 2);
      }
      EXPECT(result[n][e] == expected);
    }
  }
  __syncthreads();
}

template <bool is_bf16>
__device__ void check_non_finite(Checks* checks, unsigned short* tile) {
  __shared__ RowFlags<rows> flags;
  flags.clear();
  for (int i = static_cast<int>(threadIdx.x); i < rows * row_pitch<columns>; i += threads) tile[i] = 0;
  __syncthreads();
  EXPECT(!(take_non_finite_out<is_bf16, rows, columns, threads>(tile, &flags)));
  if (threadIdx.x == 0) {
    tile[5 * row_pitch<columns> + 3] = is_bf16 ? 0x7fc0 : 0x7e00;    // NaN
    tile[31 * row_pitch<columns> + 47] = is_bf16 ? 0xff80 : 0xfc00;  // -inf
    tile[6 * row_pitch<columns> + 3] = is_bf16 ? 0x7f7f : 0x7bff;    // the largest finite number
    tile[7 * row_pitch<columns> + columns] = 0xffff;                 // padding is not the tile's
  }
  __syncthreads();
  EXPECT((take_non_finite_out<is_bf16, rows, columns, threads>(tile, &flags)));
  for (int row = 0; row < rows; ++row) EXPECT(flags.test(row) == (row == 5 || row == 31));
  EXPECT(tile[5 * row_pitch<columns> + 3] == 0);
  EXPECT(tile[31 * row_pitch<columns> + 47] == 0);
  EXPECT(tile[6 * row_pitch<columns> + 3] != 0);
  __syncthreads();
}

/// Every 16-bit pattern that is a number survives widening and rounding.
template <bool is_bf16>
__device__ void check_conversions(Checks* checks) {
  for (int bits = static_cast<int>(threadIdx.x); bits < 65536; bits += threads) {
    const unsigned short element = static_cast<unsigned short>(bits);
    if (!is_finite<is_bf16>(element)) continue;
    EXPECT((pack_pair<is_bf16>(widen<is_bf16>(element), 0.f) & 0xffffu) == element);
    EXPECT(pack_pair<is_bf16>(0.f, widen<is_bf16>(element)) >> 16 == element);
  }
}

__device__ unsigned short memory[rows * 64 + 8];

extern "C" __global__ void attention_forward(Checks* checks) {
  __shared__ __align__(16) unsigned short a[rows * row_pitch<columns>];
  __shared__ __align__(16) unsigned short b[rows * row_pitch<columns>];
  // The array's address is a multiple of 16 from here.
  unsigned short* const global = memory + (16 - reinterpret_cast<unsigned long long>(memory) % 16) % 16 / 2;
  check_products<true, true>(checks, a, b, global);
  check_products<true, false>(checks, a, b, global);
  check_products<false, true>(checks, a, b, global);
  check_products<false, false>(checks, a, b, global);
  check_non_finite<true>(checks, a);
  check_non_finite<false>(checks, a);
  check_conversions<true>(checks);
  check_conversions<false>(checks);
  EXPECT(exp2_fast(0.f) == 1.f);
  EXPECT(exp2_fast(__int_as_float(static_cast<int>(0xff800000u))) == 0.f);
}
