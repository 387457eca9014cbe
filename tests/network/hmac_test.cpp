// HMAC-SHA256 against the test cases of RFC 4231, and where libcrypto refuses.
#include "network/hmac.hpp"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <string>

namespace flashspan::network {
namespace {

std::span<const std::byte> span_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// While it lives, libcrypto finds no algorithm that it would carry out, as where its configuration forbids them.
class RefusingLibcrypto {
 public:
  RefusingLibcrypto() { EXPECT_EQ(EVP_set_default_properties(nullptr, "provider=none"), 1); }
  RefusingLibcrypto(const RefusingLibcrypto&) = delete;
  RefusingLibcrypto& operator=(const RefusingLibcrypto&) = delete;
  ~RefusingLibcrypto() { EVP_set_default_properties(nullptr, ""); }
};

std::string code_of(const std::string& secret, const std::string& text) {
  const auto signer = hmac_signer(span_of(secret));
  EXPECT_TRUE(signer.has_value());
  if (!signer) return "";
  const cache::AuthenticationCode code = (*signer)(span_of(text));
  std::string digits;
  for (const std::byte byte : code) {
    digits += "0123456789abcdef"[std::to_integer<int>(byte) >> 4];
    digits += "0123456789abcdef"[std::to_integer<int>(byte) & 0xf];
  }
  return digits;
}

TEST(Hmac, IsThatOfRfc4231) {
  EXPECT_EQ(code_of(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(code_of("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(code_of(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, ThatLibcryptoRefusesIsAnErrorBeforeAnythingIsSigned) {
  const RefusingLibcrypto refusing;
  const auto signer = hmac_signer(span_of("a secret of the machines"));
  ASSERT_FALSE(signer.has_value());
  EXPECT_EQ(signer.error().code, ErrorCode::unsupported);
  EXPECT_EQ(signer.error().argument, "signing key");
}

TEST(Hmac, ThatLibcryptoRefusesLaterIsACodeThatNobodyCanKnow) {
  const auto signer = hmac_signer(span_of("a secret of the machines"));
  ASSERT_TRUE(signer.has_value());
  const auto sound = (*signer)(span_of("text"));
  {
    const RefusingLibcrypto refusing;
    const auto first = (*signer)(span_of("text"));
    const auto second = (*signer)(span_of("text"));
    EXPECT_NE(first, cache::AuthenticationCode{});
    EXPECT_NE(first, sound);
    EXPECT_NE(first, second) << "a code that was seen must not pass later";
  }
  EXPECT_EQ((*signer)(span_of("text")), sound);
}

}  // namespace
}  // namespace flashspan::network
