// convert.cuh -- stands in for templates/ptx/convert.cuh on the host.
#pragma once

namespace flashspan_device {

/// 16-bit floating-point formats by bits of exponent and mantissa, rounded to nearest even.
template <bool is_bf16>
inline unsigned int round_to_16_bits(float value) {
  const unsigned int bits = std::bit_cast<unsigned int>(value);
  if (std::isnan(value)) return 0x7fffu;
  if constexpr (is_bf16) {
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  } else {
    const unsigned int sign = bits >> 16 & 0x8000u;
    const float magnitude = std::fabs(value);
    if (magnitude >= 65520.f) return sign | 0x7c00u;
    // The spacing of f16 numbers near `magnitude`; those below 2^-14 have that of 2^-14.
    const int exponent = magnitude < 0x1p-14f ? -14 : std::ilogb(magnitude);
    const float units = std::nearbyint(std::ldexp(magnitude, 10 - exponent));  // 1024 .. 2048, or less below 2^-14
    const auto steps = static_cast<unsigned int>(units);
    // A mantissa of 1024 units carries into the exponent by itself.
    return sign | (steps < 1024u ? steps : (static_cast<unsigned int>(exponent + 14) << 10) + steps);
  }
}

template <bool is_bf16>
inline unsigned int pack_pair(float low, float high) {
  return round_to_16_bits<is_bf16>(low) | round_to_16_bits<is_bf16>(high) << 16;
}

template <bool is_bf16>
inline float widen(unsigned short bits) {
  if constexpr (is_bf16) {
    return std::bit_cast<float>(static_cast<unsigned int>(bits) << 16);
  } else {
    const int exponent = bits >> 10 & 0x1f;
    const int mantissa = bits & 0x3ff;
    const float sign = (bits & 0x8000) != 0 ? -1.f : 1.f;
    if (exponent == 31) return mantissa != 0 ? std::nanf("") : sign * HUGE_VALF;
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
    return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  }
}

inline float exp2_fast(float x) { return std::exp2(x); }
inline float reciprocal_fast(float x) { return 1.f / x; }

}  // namespace flashspan_device
