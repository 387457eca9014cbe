// arithmetic.hpp -- what the operations of the language give, for every operand: the meaning that all back ends
// share, written down once for the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace flashspan::mask {

// Integers are 64-bit two's complement and wrap; unsigned arithmetic does that without undefined behaviour.

constexpr std::int64_t wrapping_add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
constexpr std::int64_t wrapping_subtract(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}
constexpr std::int64_t wrapping_multiply(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
constexpr std::int64_t wrapping_negate(std::int64_t a) { return wrapping_subtract(0, a); }
/// The smallest integer is its own absolute value.
constexpr std::int64_t wrapping_absolute(std::int64_t a) { return a < 0 ? wrapping_negate(a) : a; }

/// Rounds towards minus infinity; 0 if b is 0. The quotient 2^63 wraps.
constexpr std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrapping_negate(a);  // INT64_MIN / -1 traps on x86
  const std::int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

/// a - b * floor_divide(a, b), so it has the sign of b; 0 if b is 0.
constexpr std::int64_t floor_modulo(std::int64_t a, std::int64_t b) {
  if (b == 0 || b == -1) return 0;
  const std::int64_t remainder = a % b;
  return remainder + (remainder != 0 && (remainder < 0) != (b < 0) ? b : 0);
}

// Reals are IEEE binary32.

/// 0 if b is 0 (of either sign).
constexpr float divide(float a, float b) { return b == 0 ? 0.0f : a / b; }

/// In both types; with a NaN the second operand.
template <typename Number>
constexpr Number minimum(Number a, Number b) {
  return a < b ? a : b;
}
template <typename Number>
constexpr Number maximum(Number a, Number b) {
  return a > b ? a : b;
}

}  // namespace flashspan::mask
