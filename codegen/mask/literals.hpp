// literals.hpp -- the value of a well-formed number token.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace flashspan::mask {

/// Decimal or hexadecimal, with underscores. Nothing if the value, negated if `negative`, has more than 64 bits.
[[nodiscard]] std::optional<std::int64_t> read_integer(std::string_view text, bool negative);

/// The binary32 value nearest to the text; nothing if it is too large for one.
[[nodiscard]] std::optional<float> read_real(std::string_view text);

}  // namespace flashspan::mask
