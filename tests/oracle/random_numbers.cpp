// random_numbers.cpp -- normal numbers and tensors filled with them.
#include "random_numbers.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tensor.hpp"

namespace oracle {

double RandomNumbers::normal() {
  const double radius = std::sqrt(-2.0 * std::log(uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

Tensor random_tensor(Index batch, Index heads, Index rows, Index columns, Format format, std::uint64_t seed,
                     double magnitude) {
  Tensor tensor(batch, heads, rows, columns);
  RandomNumbers numbers(seed);
  for (double& value : tensor.values) value = round_to(format, static_cast<float>(magnitude * numbers.normal()));
  return tensor;
}

Tensor rows_of(const Tensor& tensor, Index first, Index count) {
  Tensor part(tensor.batch, tensor.heads, count, tensor.columns);
  for_each_row(part, [&](Index b, Index h, Index s) {
    std::copy_n(tensor.row(b, h, first + s), tensor.columns, part.row(b, h, s));
  });
  return part;
}

void round_values(Tensor& tensor, Format format) {
  for (double& value : tensor.values) value = round_to(format, static_cast<float>(value));
}

}  // namespace oracle
