// sink.hpp -- a head's sink logit: one more column in the softmax of each of its rows, without a value.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "flashspan/core/tensor.hpp"

namespace flashspan::cpu {

/// -inf, which is no sink, where none is given.
[[nodiscard]] inline float sink_of(const TensorView& sink, std::int64_t h) {
  if (!sink.given()) return -std::numeric_limits<float>::infinity();
  return static_cast<const float*>(sink.data)[h * sink.strides[0]];
}

/// Its weight in a row; where lse is the sink, +inf too, the sink has all of it.
[[nodiscard]] inline float sink_weight(float sink, float lse) { return sink == lse ? 1.0F : std::exp(sink - lse); }

}  // namespace flashspan::cpu
