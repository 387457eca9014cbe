// signed_entry.cpp -- layout: an entry file; then, if it is signed, 8 bytes that say so and 32 of HMAC-SHA256.
#include "cache/signed_entry.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace flashspan::cache {
namespace {

constexpr std::string_view mark = "fsp-hmac";
constexpr std::size_t signature_bytes = mark.size() + std::tuple_size_v<AuthenticationCode>;

std::span<const std::byte> mark_bytes() { return std::as_bytes(std::span(mark)); }

bool is_signed(std::span<const std::byte> bytes) {
  if (bytes.size() < signature_bytes) return false;
  return std::ranges::equal(bytes.last(signature_bytes).first(mark.size()), mark_bytes());
}

/// Takes as long for a wrong code as for a right one, so that its bytes cannot be guessed one after another.
bool same_code(std::span<const std::byte> given, const AuthenticationCode& expected) {
  std::byte difference{0};
  for (std::size_t i = 0; i < expected.size(); ++i) difference |= given[i] ^ expected[i];
  return difference == std::byte{0};
}

}  // namespace

std::vector<std::byte> encode_signed(const KernelKey& key, const Entry& entry, const Signer& signer) {
  std::vector<std::byte> bytes = encode(key, entry);
  if (!signer) return bytes;
  const AuthenticationCode code = signer(bytes);
  bytes.insert(bytes.end(), mark_bytes().begin(), mark_bytes().end());
  bytes.insert(bytes.end(), code.begin(), code.end());
  return bytes;
}

std::optional<Entry> decode_signed(const KernelKey& key, std::span<const std::byte> bytes, const Signer& signer,
                                   std::string* why) {
  const auto refuse = [why](const char* reason) {
    if (why != nullptr) *why = reason;
    return std::nullopt;
  };
  const bool has_code = is_signed(bytes);
  const auto file = has_code ? bytes.first(bytes.size() - signature_bytes) : bytes;
  if (signer) {
    if (!has_code) return refuse("not signed");
    if (!same_code(bytes.last(std::tuple_size_v<AuthenticationCode>), signer(file))) {
      return refuse("signed with another secret, or changed since");
    }
  }
  return decode(key, file, why);
}

}  // namespace flashspan::cache
