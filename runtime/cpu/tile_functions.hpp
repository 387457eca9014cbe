// tile_functions.hpp -- the functions that an emitted CPU module defines, as this folder calls them. codegen/kernel/
// emit_llvm*.cpp writes them, by these names and with these layouts. All sizes and strides are in elements.
#pragma once

#include <cstdint>
#include <string_view>

namespace flashspan::cpu {

/// A tensor that a program looks values up in. Axes past its rank are not read.
struct LookupTensor {
  const void* data;
  std::int64_t extent[5];
  std::int64_t stride[5];
};

/// Data of one program: tensors and scalars in the order of its declarations, and the sizes of the call.
struct ProgramData {
  const LookupTensor* tensors;
  const std::int64_t* integers;
  const float* reals;
  std::int64_t q_len;
  std::int64_t kv_len;
};

/// A score tile is [rows, block_n] floats; its visibility is one 16-bit word per 16 columns, [rows, block_n / 16], the
/// lowest bit being the first column. Rows of packed operands are padded with zeros to a multiple of 16 columns.
struct TileFunctions {
  /// c[rows, cols] = a[rows, inner] * b[inner, cols], added to c if `accumulate`. `a` has any two strides; rows of b
  /// and c are contiguous; cols is a multiple of 16.
  void (*gemm)(const float* a, std::int64_t a_row, std::int64_t a_col, const float* b, std::int64_t b_row, float* c,
               std::int64_t c_row, std::int64_t rows, std::int64_t inner, std::int64_t cols, std::int32_t accumulate);
  /// target = factor * source, converted from the spec's dtype; cols may be any number.
  void (*load_rows)(const void* source, std::int64_t source_row, std::int64_t rows, std::int64_t cols, float factor,
                    float* target, std::int64_t target_row);
  /// target = factors[row] * source, rounded to nearest even into the spec's dtype; writes exactly cols columns.
  void (*store_rows)(const float* source, std::int64_t source_row, std::int64_t rows, std::int64_t cols,
                     const float* factors, void* target, std::int64_t target_row);
  /// target[col, row] = source[row, col]; rows and cols are multiples of 16.
  void (*transpose_rows)(const float* source, std::int64_t source_row, std::int64_t rows, std::int64_t cols,
                         float* target, std::int64_t target_row);
  /// flags[row] = 1 if the row holds a NaN or an infinity, else 0. cols is a multiple of 16.
  void (*nonfinite_rows)(const float* source, std::int64_t source_row, std::int64_t rows, std::int64_t cols,
                         std::uint8_t* flags);

  /// Visibility of a tile's pairs; returns how many are visible. Words past the last column are not written.
  /// Not for lowerings `none` and `interpreted`.
  std::int64_t (*mask_tile)(const ProgramData* program, std::int64_t b, std::int64_t h, std::int64_t q_begin,
                            std::int64_t k_begin, std::int64_t rows, std::int64_t cols, std::uint16_t* bits);
  /// results = the score program of `scores`, which may be the same memory; the derivative in the backward only.
  /// Columns up to the next multiple of 16 are computed as well, with any result. With a score program only.
  void (*score_tile)(const ProgramData* program, std::int64_t b, std::int64_t h, std::int64_t q_begin,
                     std::int64_t k_begin, std::int64_t rows, std::int64_t cols, const float* scores, float* results);
  void (*score_derivative_tile)(const ProgramData* program, std::int64_t b, std::int64_t h, std::int64_t q_begin,
                                std::int64_t k_begin, std::int64_t rows, std::int64_t cols, const float* scores,
                                float* results);
  /// Of every lookup whose tensor takes a gradient, one tile of [block_m, block_n] results after another: the
  /// derivative of the score program by the value found, and the number of the element that it is found in, counted row
  /// by row; -1 outside the tensor. The second does not depend on the scores. Columns as above. With score gradients
  /// only.
  void (*lookup_slope_tiles)(const ProgramData* program, std::int64_t b, std::int64_t h, std::int64_t q_begin,
                             std::int64_t k_begin, std::int64_t rows, std::int64_t cols, const float* scores,
                             float* results);
  void (*lookup_element_tiles)(const ProgramData* program, std::int64_t b, std::int64_t h, std::int64_t q_begin,
                               std::int64_t k_begin, std::int64_t rows, std::int64_t cols, const float* scores,
                               std::int64_t* results);

  // Forward.
  /// One step of the online softmax: scores become probabilities relative to the new row_max, row_sum is carried on,
  /// correction[row] is what earlier results are to be multiplied with. Returns 1 if any correction is not 1. Row
  /// arrays have room for a multiple of 16 rows. `full` takes whole vectors of columns and reads no bits.
  std::int32_t (*softmax_full)(float* scores, std::int64_t rows, std::int64_t cols, const std::uint16_t* bits,
                               float* row_max, float* row_sum, float* base, float* correction);
  std::int32_t (*softmax_masked)(float* scores, std::int64_t rows, std::int64_t cols, const std::uint16_t* bits,
                                 float* row_max, float* row_sum, float* base, float* correction);
  /// values[row] *= factors[row]; cols is a multiple of 16.
  void (*rescale_rows)(float* values, std::int64_t row_stride, std::int64_t rows, std::int64_t cols,
                       const float* factors);

  // Backward.
  /// scores become probabilities exp(score - lse); gradients, on entry dO . V, become those of the score before its
  /// program: probability * (gradient - delta) * derivative. `full` as above; `derivatives` is read only with a score.
  void (*gradient_full)(float* scores, float* gradients, const float* derivatives, std::int64_t rows, std::int64_t cols,
                        const std::uint16_t* bits, const float* lse, const float* delta);
  void (*gradient_masked)(float* scores, float* gradients, const float* derivatives, std::int64_t rows,
                          std::int64_t cols, const std::uint16_t* bits, const float* lse, const float* delta);
  /// dots[row] = left[row] . right[row], summed in the order of gemm; cols is a multiple of 16. Works on whole groups
  /// of 16 rows, so there must be room (and may be anything) up to the next multiple.
  void (*row_dots)(const float* left, const float* right, std::int64_t row_stride, std::int64_t rows, std::int64_t cols,
                   float* dots);
};

/// Calls visit(name, reference to the pointer) for every function, present or not.
template <typename Visit>
void for_each_function(TileFunctions& functions, const Visit& visit) {
  visit("gemm", functions.gemm);
  visit("load_rows", functions.load_rows);
  visit("store_rows", functions.store_rows);
  visit("transpose_rows", functions.transpose_rows);
  visit("nonfinite_rows", functions.nonfinite_rows);
  visit("mask_tile", functions.mask_tile);
  visit("score_tile", functions.score_tile);
  visit("score_derivative_tile", functions.score_derivative_tile);
  visit("lookup_slope_tiles", functions.lookup_slope_tiles);
  visit("lookup_element_tiles", functions.lookup_element_tiles);
  visit("softmax_full", functions.softmax_full);
  visit("softmax_masked", functions.softmax_masked);
  visit("rescale_rows", functions.rescale_rows);
  visit("gradient_full", functions.gradient_full);
  visit("gradient_masked", functions.gradient_masked);
  visit("row_dots", functions.row_dots);
}

}  // namespace flashspan::cpu
