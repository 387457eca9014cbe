// literals.cpp -- see literals.hpp.
#include "codegen/mask/literals.hpp"

#include <charconv>
#include <string>

namespace flashspan::mask {
namespace {

std::string without_underscores(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != '_') digits += c;
  }
  return digits;
}

}  // namespace

std::optional<std::int64_t> read_integer(std::string_view text, bool negative) {
  const std::string digits = without_underscores(text);
  const bool hexadecimal = digits.size() > 2 && (digits[1] == 'x' || digits[1] == 'X');
  std::uint64_t magnitude = 0;
  const auto read = std::from_chars(digits.data() + (hexadecimal ? 2 : 0), digits.data() + digits.size(), magnitude,
                                    hexadecimal ? 16 : 10);
  const std::uint64_t largest = (std::uint64_t{1} << 63) - (negative ? 0 : 1);
  if (read.ec != std::errc() || magnitude > largest) return std::nullopt;
  return static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude);
}

std::optional<float> read_real(std::string_view text) {
  const std::string digits = without_underscores(text);
  float value = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec == std::errc()) return value;
  // Too large, or too small: only then is it less than 1 even as binary64, or has it a negative exponent.
  double wide = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), wide);
  const bool too_small = read.ec == std::errc()
                             ? wide < 1
                             : digits.find("e-") != std::string::npos || digits.find("E-") != std::string::npos;
  return too_small ? std::optional<float>(static_cast<float>(wide)) : std::nullopt;
}

}  // namespace flashspan::mask
