// products.cuh -- the two matrix products that attention is made of, for one warp that owns 16 rows.
#pragma once

#include "ptx/convert.cuh"
#include "ptx/matrix.cuh"
#include "tile/shared_tile.cuh"

namespace flashspan_device {

/// result[16 x 8 blocks] = A * B^T over `columns`, A and B both stored row by row in shared memory: scores of 16 rows
/// (from `a_row`) of one tile against 8 * blocks rows (from `b_row`) of another. `blocks` is even.
template <bool is_bf16, int blocks, int columns>
__device__ __forceinline__ void multiply_rows(float (&result)[blocks][4], const unsigned short* a, int a_row,
                                              const unsigned short* b, int b_row) {
#pragma unroll
  for (int block = 0; block < blocks; ++block) {
#pragma unroll
    for (int e = 0; e < 4; ++e) result[block][e] = 0.f;
  }
// Unrolled whole, the loads of many steps are hoisted and registers run out.
#pragma unroll 4
  for (int column = 0; column < columns; column += 16) {
    u32 a_fragment[4];
    load_a<columns>(a_fragment, a, a_row, column);
#pragma unroll
    for (int pair = 0; pair < blocks / 2; ++pair) {
      u32 b_fragment[4];
      load_b_from_rows_of_n<columns>(b_fragment, b, b_row + pair * 16, column);
      multiply_add<is_bf16>(result[2 * pair], a_fragment, b_fragment[0], b_fragment[1]);
      multiply_add<is_bf16>(result[2 * pair + 1], a_fragment, b_fragment[2], b_fragment[3]);
    }
  }
}

/// Accumulator blocks 2 k and 2 k + 1, rounded to the 16-bit format, as operand A of k-step k.
template <bool is_bf16, int blocks>
__device__ __forceinline__ void weights_fragment(u32 (&fragment)[4], const float (&weights)[blocks][4], int k_step) {
  fragment[0] = pack_pair<is_bf16>(weights[2 * k_step][0], weights[2 * k_step][1]);
  fragment[1] = pack_pair<is_bf16>(weights[2 * k_step][2], weights[2 * k_step][3]);
  fragment[2] = pack_pair<is_bf16>(weights[2 * k_step + 1][0], weights[2 * k_step + 1][1]);
  fragment[3] = pack_pair<is_bf16>(weights[2 * k_step + 1][2], weights[2 * k_step + 1][3]);
}

/// result[16 x 8 result_blocks] += weights[16 x 8 blocks] * X, X = rows row .. of a tile, columns from `first_column`.
template <bool is_bf16, int blocks, int result_blocks, int columns>
__device__ __forceinline__ void accumulate(float (&result)[result_blocks][4], const float (&weights)[blocks][4],
                                           const unsigned short* x, int row, int first_column) {
#pragma unroll
  for (int k_step = 0; k_step < blocks / 2; ++k_step) {
    u32 a_fragment[4];
    weights_fragment<is_bf16>(a_fragment, weights, k_step);
#pragma unroll
    for (int pair = 0; pair < result_blocks / 2; ++pair) {
      u32 b_fragment[4];
      load_b_from_rows_of_k<columns>(b_fragment, x, row + k_step * 16, first_column + pair * 16);
      multiply_add<is_bf16>(result[2 * pair], a_fragment, b_fragment[0], b_fragment[1]);
      multiply_add<is_bf16>(result[2 * pair + 1], a_fragment, b_fragment[2], b_fragment[3]);
    }
  }
}

}  // namespace flashspan_device
