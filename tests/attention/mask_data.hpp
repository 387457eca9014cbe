// mask_data.hpp -- small helpers that make the data of masks on the host.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "flashspan/core/tensor.hpp"
#include "oracle/random_numbers.hpp"
#include "oracle/tensor.hpp"

namespace flashspan::tests {

using Integers = std::vector<std::int32_t>;
using Reals = std::vector<float>;

inline TensorView view_of(Integers& values, std::initializer_list<std::int64_t> shape) {
  return TensorView::contiguous(values.data(), DType::i32, shape);
}
inline TensorView view_of(Reals& values, std::initializer_list<std::int64_t> shape) {
  return TensorView::contiguous(values.data(), DType::f32, shape);
}

/// 0, 0, .., 1, 1, ..: the number of every token's document.
inline Integers document_ids(const std::vector<oracle::Index>& lengths) {
  Integers ids;
  for (std::size_t document = 0; document < lengths.size(); ++document) {
    ids.insert(ids.end(), static_cast<std::size_t>(lengths[document]), static_cast<std::int32_t>(document));
  }
  return ids;
}

inline Integers random_integers(std::size_t count, std::int64_t low, std::int64_t high, std::uint64_t seed) {
  oracle::RandomNumbers numbers(seed);
  Integers values(count);
  for (std::int32_t& value : values) value = static_cast<std::int32_t>(numbers.integer(low, high));
  return values;
}

inline Reals random_reals(std::size_t count, double magnitude, std::uint64_t seed) {
  oracle::RandomNumbers numbers(seed);
  Reals values(count);
  for (float& value : values) value = static_cast<float>(magnitude * numbers.normal());
  return values;
}

/// A dense mask [b][h][q][k] of bytes, one nonzero per visible pair.
struct DenseMask {
  oracle::Index batch, heads, q_len, kv_len;
  std::vector<std::uint8_t> bytes;

  DenseMask(oracle::Index b, oracle::Index h, oracle::Index q, oracle::Index k)
      : batch(b), heads(h), q_len(q), kv_len(k), bytes(static_cast<std::size_t>(b * h * q * k), 0) {}
  [[nodiscard]] std::uint8_t& at(oracle::Index b, oracle::Index h, oracle::Index q, oracle::Index k) {
    return bytes[static_cast<std::size_t>(((b * heads + h) * q_len + q) * kv_len + k)];
  }
  [[nodiscard]] bool operator()(oracle::Index b, oracle::Index h, oracle::Index q, oracle::Index k) const {
    return bytes[static_cast<std::size_t>(((b * heads + h) * q_len + q) * kv_len + k)] != 0;
  }
};

}  // namespace flashspan::tests
