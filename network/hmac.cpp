#include "network/hmac.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <optional>
#include <random>
#include <vector>

namespace flashspan::network {
namespace {

/// Nothing if libcrypto refuses: its configuration may rule out the algorithm or the secret, and memory may be short.
std::optional<cache::AuthenticationCode> hmac(std::span<const std::byte> secret, std::span<const std::byte> bytes) {
  cache::AuthenticationCode code{};
  const auto* const made = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                                reinterpret_cast<unsigned char*>(code.data()), nullptr);
  return made != nullptr ? std::optional(code) : std::nullopt;
}

/// Another one each time: one that had been sent with an entry could be sent back with another.
cache::AuthenticationCode code_that_nobody_knows() {
  cache::AuthenticationCode code{};
  std::random_device random;
  for (std::byte& byte : code) byte = static_cast<std::byte>(random());
  return code;
}

}  // namespace

Result<cache::Signer> hmac_signer(std::span<const std::byte> secret) {
  if (!hmac(secret, {})) {
    return Error{ErrorCode::unsupported, "signing key", "libcrypto refuses to sign with it",
                 "a libcrypto that is configured to allow HMAC-SHA256 with a secret of this length", ""};
  }
  return cache::Signer(
      [secret = std::vector<std::byte>(secret.begin(), secret.end())](std::span<const std::byte> bytes) {
        const auto code = hmac(secret, bytes);
        return code ? *code : code_that_nobody_knows();
      });
}

}  // namespace flashspan::network
