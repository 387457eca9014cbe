// element.hpp -- reading one element of a tensor in host memory, in the type that the language gives it.
#pragma once

#include <bit>
#include <cstdint>

#include "flashspan/core/tensor.hpp"

namespace flashspan::mask {

/// binary16 to binary32, exactly; NaN stays NaN.
constexpr float real_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide_exponent = exponent == 0x1fu ? 0xffu : exponent + 112u;  // bias 127 - bias 15
  return std::bit_cast<float>(sign | (wide_exponent << 23) | (fraction << 13));
}

/// bfloat16 is the upper half of binary32.
constexpr float real_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Element of an i32 tensor, `offset` elements from its start.
inline std::int64_t integer_element(const TensorView& view, std::int64_t offset) {
  return static_cast<const std::int32_t*>(view.data)[offset];
}

/// Element of an f32, f16 or bf16 tensor.
inline float real_element(const TensorView& view, std::int64_t offset) {
  switch (view.dtype) {
    case DType::f32:
      return static_cast<const float*>(view.data)[offset];
    case DType::f16:
      return real_from_f16(static_cast<const std::uint16_t*>(view.data)[offset]);
    case DType::bf16:
      return real_from_bf16(static_cast<const std::uint16_t*>(view.data)[offset]);
    case DType::i32:
      break;
  }
  return static_cast<float>(static_cast<const std::int32_t*>(view.data)[offset]);
}

}  // namespace flashspan::mask
