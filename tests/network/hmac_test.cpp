// HMAC-SHA256 against the test cases of RFC 4231.
#include "network/hmac.hpp"

#include <gtest/gtest.h>

#include <string>

namespace flashspan::network {
namespace {

std::string code_of(const std::string& secret, const std::string& text) {
  const cache::AuthenticationCode code = hmac_signer(std::as_bytes(std::span(secret)))(std::as_bytes(std::span(text)));
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

}  // namespace
}  // namespace flashspan::network
