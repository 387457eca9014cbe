#include "runtime/cpu/tile_mask.hpp"

#include <algorithm>

#include "codegen/mask/strip_evaluator.hpp"

namespace flashspan::cpu {

std::int64_t TileMask::interpret(std::int64_t b, std::int64_t h, std::int64_t q_begin, std::int64_t k_begin,
                                 std::int64_t rows, std::int64_t cols, std::uint16_t* words) const {
  mask::StripEvaluator evaluator(*program_, *bindings_, static_cast<int>(vector_columns));
  evaluator.set_head(b, h, sizes_.shape.q_len, sizes_.shape.kv_len);
  const std::int64_t words_per_row = sizes_.block_n / vector_columns;
  std::int64_t visible = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    evaluator.set_query(q_begin + row);
    for (std::int64_t first = 0; first < cols; first += vector_columns) {
      const auto count = static_cast<int>(std::min(cols - first, vector_columns));
      evaluator.evaluate(k_begin + first, count);
      unsigned bits = 0;
      for (int place = 0; place < count; ++place) bits |= (evaluator.visible(place) ? 1U : 0U) << place;
      words[row * words_per_row + first / vector_columns] = static_cast<std::uint16_t>(bits);
      visible += __builtin_popcount(bits);
    }
  }
  return visible;
}

}  // namespace flashspan::cpu
