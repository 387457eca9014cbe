#include "runtime/cpu/tile_product.hpp"

#include <algorithm>
#include <vector>

namespace flashspan::cpu {

void accumulate(const TileFunctions& functions, const Product& p) {
  functions.gemm(p.a, p.a_row, p.a_col, p.b, p.b_row, p.c, p.c_row, p.rows, p.inner, p.cols, 1);
}

void accumulate_visible(const TileFunctions& functions, const Product& p, const std::uint8_t* nonfinite,
                        const TileBits& bits, bool transposed) {
  if (std::find(nonfinite, nonfinite + p.inner, 1) == nonfinite + p.inner) return accumulate(functions, p);
  // One row of c at a time, against a copy of b in which the flagged rows that it does not see are zero. Rare.
  std::vector<float> copy(static_cast<std::size_t>(p.inner * p.cols));
  for (std::int64_t row = 0; row < p.rows; ++row) {
    for (std::int64_t inner = 0; inner < p.inner; ++inner) {
      float* target = copy.data() + inner * p.cols;
      const bool visible = transposed ? bits.visible(inner, row) : bits.visible(row, inner);
      if (nonfinite[inner] != 0 && !visible) {
        std::fill_n(target, p.cols, 0.0F);
      } else {
        std::copy_n(p.b + inner * p.b_row, p.cols, target);
      }
    }
    functions.gemm(p.a + row * p.a_row, p.a_row, p.a_col, copy.data(), p.cols, p.c + row * p.c_row, p.c_row, 1, p.inner,
                   p.cols, 1);
  }
}

}  // namespace flashspan::cpu
