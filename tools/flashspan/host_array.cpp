// host_array.cpp -- owned arrays and the conversions between binary32, binary16 and bfloat16.
#include "tools/flashspan/host_array.hpp"

#include <algorithm>
#include <bit>

namespace flashspan::tool {

HostArray HostArray::zeros(DType dtype, std::vector<std::int64_t> shape) {
  HostArray array{dtype, std::move(shape), {}};
  array.bytes.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, array.byte_count())));
  return array;
}

std::int64_t HostArray::element_count() const {
  std::int64_t count = 1;
  for (const std::int64_t length : shape) count *= length;
  return count;
}

TensorView HostArray::view() const {
  TensorView view;
  view.data = const_cast<std::byte*>(bytes.data());
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    view.shape[axis] = shape[axis];
    view.strides[axis] = stride;
    stride *= shape[axis];
  }
  return view;
}

std::string to_string(const HostArray& array) { return to_string(array.view()); }

std::uint16_t half_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);   // NaN
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // rounds to 65536 or more
  if (magnitude >= 0x38800000U) {                                                   // normal in binary16
    const std::uint32_t rebiased = magnitude - 0x38000000U;
    return static_cast<std::uint16_t>(sign | ((rebiased + 0xfffU + ((rebiased >> 13) & 1U)) >> 13));
  }
  if (magnitude <= 0x33000000U) return sign;  // at most half of the smallest subnormal, which ties to even zero
  const std::uint32_t mantissa = (magnitude & 0x7fffffU) | 0x800000U;
  const std::uint32_t shift = 126U - (magnitude >> 23);
  const std::uint32_t halfway = 1U << (shift - 1);
  const std::uint32_t truncated = mantissa >> shift;
  const std::uint32_t rest = mantissa & ((1U << shift) - 1U);
  const bool up = rest > halfway || (rest == halfway && (truncated & 1U) != 0);
  return static_cast<std::uint16_t>(sign | (truncated + (up ? 1U : 0U)));
}

float float_from_half(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

std::uint16_t bfloat_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

float float_from_bfloat(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

namespace {

float element_as_float(const HostArray& array, std::size_t index) {
  switch (array.dtype) {
    case DType::f32:
      return array.data<float>()[index];
    case DType::f16:
      return float_from_half(array.data<std::uint16_t>()[index]);
    case DType::bf16:
      return float_from_bfloat(array.data<std::uint16_t>()[index]);
    case DType::i32:
      return static_cast<float>(array.data<std::int32_t>()[index]);
  }
  return 0;
}

}  // namespace

HostArray converted(HostArray array, DType dtype) {
  if (array.dtype == dtype) return array;
  HostArray result = HostArray::zeros(dtype, array.shape);
  const auto count = static_cast<std::size_t>(array.element_count());
  for (std::size_t index = 0; index < count; ++index) {
    const float value = element_as_float(array, index);
    switch (dtype) {
      case DType::f32:
        result.data<float>()[index] = value;
        break;
      case DType::f16:
        result.data<std::uint16_t>()[index] = half_from_float(value);
        break;
      case DType::bf16:
        result.data<std::uint16_t>()[index] = bfloat_from_float(value);
        break;
      case DType::i32:
        result.data<std::int32_t>()[index] = static_cast<std::int32_t>(value);
        break;
    }
  }
  return result;
}

}  // namespace flashspan::tool
