// kernel_key.cpp -- the hash, its canonical byte order and its text form.
#include "cache/kernel_key.hpp"

#include <array>
#include <cstring>

#include "cache/little_endian.hpp"

// Header only, so that no installed package depends on libxxhash.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace flashspan::cache {
namespace {

constexpr std::string_view hexadecimal_digits = "0123456789abcdef";

}  // namespace

std::string KernelKey::to_text() const {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += hexadecimal_digits[byte >> 4];
    text += hexadecimal_digits[byte & 0xf];
  }
  return text;
}

std::optional<KernelKey> KernelKey::from_text(std::string_view text) {
  KernelKey key;
  if (text.size() != 2 * key.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < key.bytes.size(); ++i) {
    const std::size_t high = hexadecimal_digits.find(text[2 * i]);
    const std::size_t low = hexadecimal_digits.find(text[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    key.bytes[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return key;
}

KernelKey KernelKey::of(std::span<const std::string_view> parts) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const std::string_view part : parts) {
    std::array<std::byte, 8> length{};
    put_number(length, part.size());
    XXH3_128bits_update(&state, length.data(), length.size());
    XXH3_128bits_update(&state, part.data(), part.size());
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
  KernelKey key;
  static_assert(sizeof(canonical.digest) == sizeof(key.bytes));
  std::memcpy(key.bytes.data(), canonical.digest, sizeof(canonical.digest));
  return key;
}

std::size_t KernelKeyHash::operator()(const KernelKey& key) const noexcept {
  std::size_t hash = 0;  // the key is a hash already: any of its words is as good
  std::memcpy(&hash, key.bytes.data(), sizeof(hash));
  return hash;
}

}  // namespace flashspan::cache
