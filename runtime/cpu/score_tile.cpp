#include "runtime/cpu/score_tile.hpp"

#include <algorithm>
#include <limits>

namespace flashspan::cpu {

void TileVisibility::show_all(const CallSizes& sizes, std::int64_t rows, std::int64_t cols) {
  const std::int64_t words_per_row = sizes.block_n / vector_columns;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t word = 0; word * vector_columns < cols; ++word) {
      const std::int64_t left = std::min(cols - word * vector_columns, vector_columns);
      words_[static_cast<std::size_t>(row * words_per_row + word)] = static_cast<std::uint16_t>((1 << left) - 1);
    }
  }
}

void TileVisibility::set(const TileContext& context, const TilePosition& position) {
  const CallSizes& sizes = context.sizes;
  const std::int64_t rows = sizes.rows_of(position.q_tile);
  const std::int64_t cols = sizes.cols_of(position.key.index);
  masked_ = position.key.partial || cols % vector_columns != 0;
  if (position.key.partial) {
    context.mask.evaluate(position.b, position.h, position.q_tile * sizes.block_m, position.key.index * sizes.block_n,
                          rows, cols, words_.data());
  } else if (masked_) {
    show_all(sizes, rows, cols);
  }
}

void TileVisibility::hide_empty_rows(const CallSizes& sizes, const TilePosition& position, const float* lse) {
  const std::int64_t rows = sizes.rows_of(position.q_tile);
  const std::int64_t words_per_row = sizes.block_n / vector_columns;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (lse[row] != -std::numeric_limits<float>::infinity()) continue;
    if (!masked_) show_all(sizes, rows, sizes.cols_of(position.key.index));
    masked_ = true;
    std::fill_n(words_.begin() + row * words_per_row, words_per_row, std::uint16_t{0});
  }
}

void multiply_scores(const TileContext& context, const float* query, const float* key_columns, std::int64_t rows,
                     std::int64_t cols, float* scores) {
  const CallSizes& sizes = context.sizes;
  context.functions.gemm(query, sizes.qk_columns, 1, key_columns, sizes.block_n, scores, sizes.block_n, rows,
                         sizes.shape.head_dim_qk, padded(cols), 0);
}

}  // namespace flashspan::cpu
