// signed_entry.hpp -- entries as they travel between machines: an entry file, and behind it, if machines share a
// secret, its authentication code, so that nobody without the secret can plant one. (An entry's checksum tells of
// damage; anyone can compute it.)
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/entry_file.hpp"
#include "cache/kernel_key.hpp"

namespace flashspan::cache {

using AuthenticationCode = std::array<std::byte, 32>;
/// HMAC-SHA256 (RFC 2104) of the bytes under the machines' secret. Empty: there is none. Thread-safe.
using Signer = std::function<AuthenticationCode(std::span<const std::byte>)>;

/// The code covers the whole entry file, and so the key.
[[nodiscard]] std::vector<std::byte> encode_signed(const KernelKey& key, const Entry& entry, const Signer& signer);
/// As decode(). With a signer, an entry without its code or with a wrong one is refused; without, a code is not looked
/// at.
[[nodiscard]] std::optional<Entry> decode_signed(const KernelKey& key, std::span<const std::byte> bytes,
                                                 const Signer& signer, std::string* why);

}  // namespace flashspan::cache
