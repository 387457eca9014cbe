// tile_product.hpp -- the matrix product behind masked operands: a zero that stands for "not visible" must hide the
// other operand even where that is NaN or infinite (0 * NaN is NaN).
#pragma once

#include <cstdint>

#include "runtime/cpu/tile_functions.hpp"

namespace flashspan::cpu {

/// Visibility words of a score tile, see tile_functions.hpp.
struct TileBits {
  const std::uint16_t* words = nullptr;
  std::int64_t words_per_row = 0;

  [[nodiscard]] bool visible(std::int64_t row, std::int64_t col) const {
    return ((words[row * words_per_row + col / 16] >> (col % 16)) & 1) != 0;
  }
};

/// c[rows, cols] += a[rows, inner] * b[inner, cols].
struct Product {
  const float* a;
  std::int64_t a_row, a_col;
  const float* b;
  std::int64_t b_row;
  float* c;
  std::int64_t c_row;
  std::int64_t rows, inner, cols;
};

/// The product of a tile whose pairs are all visible.
void accumulate(const TileFunctions& functions, const Product& product);
/// The same where `a` is zero at pairs that `bits` hides. Rows of b flagged in `nonfinite` take part only in rows of c
/// that see them; the result equals, bit for bit, that with zeros in the hidden places. `transposed`: the rows of c are
/// the columns of the score tile.
void accumulate_visible(const TileFunctions& functions, const Product& product, const std::uint8_t* nonfinite,
                        const TileBits& bits, bool transposed);

}  // namespace flashspan::cpu
