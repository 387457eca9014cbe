// formats.cpp -- the conversions, written from the formats' bit layouts (IEEE 754 section 3.4).
#include "formats.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace oracle {
namespace {

constexpr int f16_exponent_bias = 15;
constexpr int f16_fraction_bits = 10;

}  // namespace

std::size_t bytes_per_element(Format format) { return format == Format::f32 ? 4 : 2; }

double unit_roundoff(Format format) {
  switch (format) {
    case Format::f32:
      return std::ldexp(1.0, -24);
    case Format::f16:
      return std::ldexp(1.0, -11);
    case Format::bf16:
      return std::ldexp(1.0, -8);
  }
  return 0;
}

double underflow_unit(Format format) {
  switch (format) {
    case Format::f32:
      return std::ldexp(1.0, -150);
    case Format::f16:
      return std::ldexp(1.0, -25);
    case Format::bf16:
      return std::ldexp(1.0, -134);
  }
  return 0;
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  const std::uint32_t half = 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>((bits + half) >> 16);
}

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t to_f16(float value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000u : 0u;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00u);
  const float magnitude = std::fabs(value);
  constexpr float overflow = 65520.0F;  // halfway between the largest number and the next power of two
  if (magnitude >= overflow) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude == 0.0F) return sign;
  // Count in units of the last place; std::nearbyint rounds to even in the default rounding mode.
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - f16_exponent_bias) exponent = 1 - f16_exponent_bias;
  const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, f16_fraction_bits - exponent)));
  // A carry out of the fraction, or a number below the smallest normal, comes out right by plain addition.
  const std::uint32_t exponent_field = static_cast<std::uint32_t>(exponent + f16_exponent_bias - 1);
  return static_cast<std::uint16_t>(sign | ((exponent_field << f16_fraction_bits) + units));
}

float from_f16(std::uint16_t bits) {
  const int exponent_field = (bits >> f16_fraction_bits) & 0x1f;
  const auto fraction = static_cast<float>(bits & 0x3ff);
  float magnitude = 0;
  if (exponent_field == 0x1f) {
    magnitude = fraction == 0 ? INFINITY : NAN;
  } else if (exponent_field == 0) {
    magnitude = std::ldexp(fraction, 1 - f16_exponent_bias - f16_fraction_bits);
  } else {
    magnitude = std::ldexp(fraction + 1024.0F, exponent_field - f16_exponent_bias - f16_fraction_bits);
  }
  return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

float round_to(Format format, float value) {
  switch (format) {
    case Format::f32:
      return value;
    case Format::f16:
      return from_f16(to_f16(value));
    case Format::bf16:
      return from_bf16(to_bf16(value));
  }
  return value;
}

void store(Format format, float value, std::byte* memory) {
  if (format == Format::f32) {
    std::memcpy(memory, &value, sizeof(value));
    return;
  }
  const std::uint16_t bits = format == Format::f16 ? to_f16(value) : to_bf16(value);
  std::memcpy(memory, &bits, sizeof(bits));
}

float load(Format format, const std::byte* memory) {
  if (format == Format::f32) {
    float value = 0;
    std::memcpy(&value, memory, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, memory, sizeof(bits));
  return format == Format::f16 ? from_f16(bits) : from_bf16(bits);
}

}  // namespace oracle
