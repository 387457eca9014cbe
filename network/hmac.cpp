#include "network/hmac.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <vector>

namespace flashspan::network {

cache::Signer hmac_signer(std::span<const std::byte> secret) {
  return [secret = std::vector<std::byte>(secret.begin(), secret.end())](std::span<const std::byte> bytes) {
    cache::AuthenticationCode code{};
    HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
         reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(code.data()), nullptr);
    return code;
  };
}

}  // namespace flashspan::network
