// shared_tile.cuh -- a tile of 16-bit elements in shared memory: its layout, filling it from global memory with zeros
// outside the tensor, and reading matrix fragments from it.
#pragma once

#include "ptx/copy.cuh"
#include "ptx/matrix.cuh"

namespace flashspan_device {

/// Elements from one row to the next. `columns` is a multiple of 16, so a row is an odd number of 16-byte units and
/// the eight rows that one ldmatrix phase reads fall into different banks.
template <int columns>
constexpr int row_pitch = columns + 8;

constexpr int bytes_per_element = 2;
constexpr int elements_per_copy = 8;

/// Copies rows [first_row, first_row + rows) of a [length, head_dim] matrix; rows from `length` on and columns from
/// `head_dim` on become zero, so that memory outside the tensor has no influence. With `aligned` the copies are
/// asynchronous (close the group and wait), else done on return; either way a block barrier has to follow.
template <int rows, int columns, int head_dim, bool aligned, int threads>
__device__ __forceinline__ void fill_tile(unsigned short* tile, const unsigned short* matrix, long long stride_row,
                                          int first_row, int length) {
  constexpr int copies_per_row = columns / elements_per_copy;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < rows * copies_per_row; i += threads) {
    const int row = i / copies_per_row;
    const int column = i % copies_per_row * elements_per_copy;
    const bool inside = first_row + row < length && column < head_dim;
    unsigned short* to = tile + row * row_pitch<columns> + column;
    const unsigned short* from = matrix + (inside ? (first_row + row) * stride_row + column : 0);
    if constexpr (aligned) {
      copy_16_bytes(shared_address(to), from, inside);
    } else {
#pragma unroll
      for (int element = 0; element < elements_per_copy; ++element) {
        to[element] = inside ? from[element] : static_cast<unsigned short>(0);
      }
    }
  }
}

/// Byte offset of the row that this lane gives to ldmatrix for four 8 x 8 matrices: the second matrix stands below the
/// first (`second_below`) or to its right, the last two on the other side.
template <int columns, bool second_below>
__device__ __forceinline__ u32 lane_offset() {
  const u32 lane = threadIdx.x % 32;
  const u32 second = lane / 8 % 2 * 8;
  const u32 last = lane / 16 * 8;
  const u32 row = lane % 8 + (second_below ? second : last);
  const u32 column = second_below ? last : second;
  return (row * row_pitch<columns> + column) * bytes_per_element;
}

/// Address of (row, column) as seen from this lane; the variable part comes first, so that the rest folds into the
/// instruction's immediate offset.
template <int columns, bool second_below>
__device__ __forceinline__ u32 lane_address(const unsigned short* tile, int row, int column) {
  return shared_address(tile) + lane_offset<columns, second_below>() +
         static_cast<u32>((row * row_pitch<columns> + column) * bytes_per_element);
}

/// Operand A, 16 x 16 at (row, column) of a tile stored [m][k].
template <int columns>
__device__ __forceinline__ void load_a(u32 (&fragment)[4], const unsigned short* tile, int row, int column) {
  load_matrices(fragment, lane_address<columns, true>(tile, row, column));
}

/// Operand B, two neighbouring 16 x 8 blocks, of a tile stored [n][k]: rows row .. row + 15 are n, columns
/// column .. column + 15 are k. Elements 0, 1 belong to the first block, 2, 3 to the second.
template <int columns>
__device__ __forceinline__ void load_b_from_rows_of_n(u32 (&fragment)[4], const unsigned short* tile, int row,
                                                      int column) {
  load_matrices(fragment, lane_address<columns, false>(tile, row, column));
}

/// The same of a tile stored [k][n]: rows row .. row + 15 are k, columns column .. column + 15 are n.
template <int columns>
__device__ __forceinline__ void load_b_from_rows_of_k(u32 (&fragment)[4], const unsigned short* tile, int row,
                                                      int column) {
  load_matrices_transposed(fragment, lane_address<columns, true>(tile, row, column));
}

}  // namespace flashspan_device
