// tensor.hpp -- the tests' own tensor: fp64 values of shape [batch, heads, rows, columns], row-major.
#pragma once

#include <cstdint>
#include <vector>

#include "formats.hpp"

namespace oracle {

using Index = std::int64_t;

struct Tensor {
  Index batch = 0, heads = 0, rows = 0, columns = 0;
  std::vector<double> values;

  Tensor() = default;
  Tensor(Index batch_size, Index head_count, Index row_count, Index column_count, double fill = 0)
      : batch(batch_size),
        heads(head_count),
        rows(row_count),
        columns(column_count),
        values(static_cast<std::size_t>(batch_size * head_count * row_count * column_count), fill) {}

  [[nodiscard]] double* row(Index b, Index h, Index s) {
    return values.data() + ((b * heads + h) * rows + s) * columns;
  }
  [[nodiscard]] const double* row(Index b, Index h, Index s) const {
    return values.data() + ((b * heads + h) * rows + s) * columns;
  }
  [[nodiscard]] double& at(Index b, Index h, Index s, Index d = 0) { return row(b, h, s)[d]; }
  [[nodiscard]] double at(Index b, Index h, Index s, Index d = 0) const { return row(b, h, s)[d]; }
  [[nodiscard]] bool same_shape(const Tensor& other) const {
    return batch == other.batch && heads == other.heads && rows == other.rows && columns == other.columns;
  }
};

/// Calls visit(b, h, s) for every row.
template <typename Visit>
void for_each_row(const Tensor& tensor, const Visit& visit) {
  for (Index b = 0; b < tensor.batch; ++b) {
    for (Index h = 0; h < tensor.heads; ++h) {
      for (Index s = 0; s < tensor.rows; ++s) visit(b, h, s);
    }
  }
}

/// Copy of `count` rows of every head, from `first` on.
[[nodiscard]] Tensor rows_of(const Tensor& tensor, Index first, Index count);

/// Standard normal values times `magnitude`, rounded to `format`; the same for equal seeds on every machine.
[[nodiscard]] Tensor random_tensor(Index batch, Index heads, Index rows, Index columns, Format format,
                                   std::uint64_t seed, double magnitude = 1);
/// Rounds every value to `format`.
void round_values(Tensor& tensor, Format format);

}  // namespace oracle
