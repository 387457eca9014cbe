// hmac.hpp -- HMAC-SHA256 of libcrypto.
#pragma once

#include <cstddef>
#include <span>

#include "cache/signed_entry.hpp"
#include "flashspan/core/error.hpp"

namespace flashspan::network {

/// Keeps a copy of the secret. Error: unsupported, where libcrypto refuses to sign with it. Where it does so only
/// later, a code is random: nobody's entry passes, and nobody takes one that is signed so.
[[nodiscard]] Result<cache::Signer> hmac_signer(std::span<const std::byte> secret);

}  // namespace flashspan::network
