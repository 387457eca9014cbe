// entry_file.cpp -- any bytes are refused, or they are what their entry is written as.
#include "cache/entry_file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cache/signed_entry.hpp"
#include "tests/fuzz/require.hpp"

namespace {

using namespace flashspan::cache;
using flashspan::fuzz::require;

/// The key that the bytes say they are of, so that the checks behind it are reached.
KernelKey key_in(std::span<const std::byte> bytes) {
  constexpr std::size_t key_offset = 16;
  KernelKey key;
  if (bytes.size() < key_offset + key.bytes.size()) return key;
  for (std::size_t i = 0; i < key.bytes.size(); ++i) {
    key.bytes[i] = std::to_integer<std::uint8_t>(bytes[key_offset + i]);
  }
  return key;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t count) {
  const auto bytes = std::as_bytes(std::span(data, count));
  const KernelKey key = key_in(bytes);
  std::string why;
  const auto entry = decode(key, bytes, &why);
  require(entry.has_value() || !why.empty(), "a refusal has a reason");
  if (entry) require(std::ranges::equal(encode(key, *entry), bytes), "an entry has one form");
  const Signer signer = [](std::span<const std::byte> text) {
    return AuthenticationCode{static_cast<std::byte>(text.size() & 0xff)};
  };
  const auto trusted = decode_signed(key, bytes, signer, &why);
  if (trusted) require(std::ranges::equal(encode_signed(key, *trusted, signer), bytes), "a signed entry has one form");
  return 0;
}
