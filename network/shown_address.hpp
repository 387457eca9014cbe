// shown_address.hpp -- an address as messages show it. All in a header: the library says what it does without where the
// plug-in is missing, with which the rest of this folder is missing.
#pragma once

#include <string>
#include <string_view>

namespace flashspan::network {

/// With "..." in place of all that stands before the last '@', which may be a password, but the scheme. Of any text:
/// one that is no address may be a password all the more.
[[nodiscard]] inline std::string shown_address(std::string_view text) {
  const std::size_t at = text.rfind('@');
  if (at == std::string_view::npos) return std::string(text);
  constexpr std::string_view behind_scheme = "://";
  const std::size_t colon = text.find(':');
  const bool has_scheme = colon < at && text.substr(colon).starts_with(behind_scheme);
  const std::string scheme(text.substr(0, has_scheme ? colon + behind_scheme.size() : 0));
  return scheme + "..." + std::string(text.substr(at));
}

}  // namespace flashspan::network
