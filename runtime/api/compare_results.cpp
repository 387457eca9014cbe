#include "runtime/api/compare_results.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace flashspan::api {
namespace {

float from_f16(std::uint16_t bits) {
  const bool negative = (bits & 0x8000U) != 0;
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                              : std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
  if (exponent == 0x1f) value = fraction == 0 ? INFINITY : NAN;
  return negative ? -value : value;
}

template <typename Element>
Element element_at(std::span<const std::byte> memory, std::size_t index) {
  Element element;
  std::memcpy(&element, memory.data() + index * sizeof(Element), sizeof(Element));
  return element;
}

/// Readers of one element, one for each dtype, so that a comparison of many has no switch inside.
struct ReadF32 {
  using Element = float;
  static double value(float element) { return double{element}; }
};
struct ReadF16 {
  using Element = std::uint16_t;
  static double value(std::uint16_t element) { return double{from_f16(element)}; }
};
struct ReadBf16 {
  using Element = std::uint16_t;
  static double value(std::uint16_t element) { return double{std::bit_cast<float>(std::uint32_t{element} << 16)}; }
};
struct ReadI32 {
  using Element = std::int32_t;
  static double value(std::int32_t element) { return static_cast<double>(element); }
};

std::string number(double value) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.6g", value);
  return buffer.data();
}

std::string differs(std::size_t index, double got, double wanted) {
  return "element " + std::to_string(index) + " is " + number(got) + ", by the default tile " + number(wanted);
}

template <typename Read>
std::optional<std::string> disagreement_of(std::span<const std::byte> reference, std::span<const std::byte> result,
                                           const Tolerance& tolerance) {
  const auto at = [](std::span<const std::byte> memory, std::size_t index) {
    return Read::value(element_at<typename Read::Element>(memory, index));
  };
  const std::size_t count = reference.size() / sizeof(typename Read::Element);
  double largest = 0, largest_difference = 0, squares = 0, squared_differences = 0;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double wanted = at(reference, i);
    const double got = at(result, i);
    const bool same = got == wanted || (std::isnan(got) && std::isnan(wanted));
    if (same && !std::isfinite(wanted)) continue;
    const double difference = same ? 0 : std::abs(got - wanted);
    if (!std::isfinite(difference)) return differs(i, got, wanted);
    largest = std::max(largest, std::abs(wanted));
    squares += wanted * wanted;
    squared_differences += difference * difference;
    if (difference > largest_difference) {
      largest_difference = difference;
      worst = i;
    }
  }
  if (largest_difference > tolerance.largest * largest) return differs(worst, at(result, worst), at(reference, worst));
  if (squared_differences > tolerance.mean * tolerance.mean * squares) {
    return "its elements are off by " + number(std::sqrt(squared_differences / squares)) + " of their mean square";
  }
  return std::nullopt;
}

}  // namespace

Tolerance tolerance_of(DType dtype) {
  // The spacing of the dtype, with room for sums of some thousand terms in another order; of binary32, whose products
  // may be computed by other instructions, more of it.
  const double spacing = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-18;
  return {.largest = 16 * spacing, .mean = 4 * spacing};
}

std::optional<std::string> disagreement(std::span<const std::byte> reference, std::span<const std::byte> result,
                                        DType dtype, const Tolerance& tolerance) {
  if (reference.empty() || std::memcmp(reference.data(), result.data(), reference.size()) == 0) return std::nullopt;
  switch (dtype) {
    case DType::f32:
      return disagreement_of<ReadF32>(reference, result, tolerance);
    case DType::f16:
      return disagreement_of<ReadF16>(reference, result, tolerance);
    case DType::bf16:
      return disagreement_of<ReadBf16>(reference, result, tolerance);
    case DType::i32:
      return disagreement_of<ReadI32>(reference, result, tolerance);
  }
  return std::nullopt;
}

std::size_t span_bytes(const TensorView& view) {
  if (view.element_count() == 0) return 0;
  std::int64_t last = 0;
  for (int axis = 0; axis < view.rank; ++axis) {
    const auto index = static_cast<std::size_t>(axis);
    last += (view.shape[index] - 1) * view.strides[index];
  }
  return static_cast<std::size_t>((last + 1) * size_in_bytes(view.dtype));
}

void poison(const TensorView& view, std::vector<std::byte>& memory) {
  const auto element_bytes = static_cast<std::size_t>(size_in_bytes(view.dtype));
  if (view.element_count() == 0) return;
  const int last = view.rank - 1;
  const std::int64_t row = view.shape[static_cast<std::size_t>(last)];
  const std::int64_t step = view.strides[static_cast<std::size_t>(last)];
  for (std::int64_t i = 0; i < view.element_count() / row; ++i) {
    std::int64_t rest = i;
    std::int64_t at = 0;
    for (int axis = last - 1; axis >= 0; --axis) {
      const auto index = static_cast<std::size_t>(axis);
      at += rest % view.shape[index] * view.strides[index];
      rest /= view.shape[index];
    }
    constexpr int nan_bits = 0xff;  // every byte: NaN in all formats
    const bool whole_row = step == 1;
    for (std::int64_t column = 0; column < (whole_row ? 1 : row); ++column) {
      const auto place = static_cast<std::size_t>(at + column * step) * element_bytes;
      std::memset(memory.data() + place, nan_bits,
                  whole_row ? static_cast<std::size_t>(row) * element_bytes : element_bytes);
    }
  }
}

}  // namespace flashspan::api
