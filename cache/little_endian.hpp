// little_endian.hpp -- numbers in files and in what is hashed: least significant byte first, whatever the host's order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace flashspan::cache {

/// A number of the files' headers.
inline constexpr std::size_t number_bytes = 8;

/// Fills `to`, of at most eight bytes; what does not fit is left out.
inline void put_number(std::span<std::byte> to, std::uint64_t value) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
}

[[nodiscard]] inline std::uint64_t get_number(std::span<const std::byte> from) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < from.size(); ++i) value |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  return value;
}

}  // namespace flashspan::cache
