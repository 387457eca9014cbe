// hmac.hpp -- HMAC-SHA256 of libcrypto.
#pragma once

#include <cstddef>
#include <span>

#include "cache/signed_entry.hpp"

namespace flashspan::network {

/// Keeps a copy of the secret.
[[nodiscard]] cache::Signer hmac_signer(std::span<const std::byte> secret);

}  // namespace flashspan::network
