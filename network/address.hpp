// address.hpp -- the forms of addresses that settings take.
#pragma once

#include <string>

#include "flashspan/core/error.hpp"

namespace flashspan::network {

/// "unix:/path", "http://[user:password@]host[:port][/path]" or "https://...". A host may be an IPv6 address in
/// brackets. In user and password, '%' and two hexadecimal digits stand for a byte.
struct HttpAddress {
  std::string socket;  ///< path of a Unix socket; empty: TCP
  std::string scheme;  ///< "http" or "https"; "http" for a Unix socket
  std::string host;    ///< without brackets; "localhost" for a Unix socket
  int port = 0;        ///< 80 or 443 if none is given
  std::string path;    ///< without a slash at the end

  /// "user:password" without escapes, or empty: as HTTP's basic authentication takes it.
  std::string login;

  /// What requests begin with: "http://host:port/path".
  [[nodiscard]] std::string base() const;
  /// For messages: without the login.
  [[nodiscard]] std::string shown() const { return socket.empty() ? base() : "unix:" + socket; }
};
/// Error: bad_argument, which names `argument`.
[[nodiscard]] Result<HttpAddress> parse_http_address(const std::string& argument, const std::string& text);

/// "redis://[[user:]password@]host[:port][/database]" or "redis+unix:///path". User and password as those of
/// HttpAddress.
struct RedisAddress {
  std::string socket;  ///< path of a Unix socket; empty: TCP
  std::string host;
  int port = 0;                ///< 6379 if none is given
  std::string user, password;  ///< without escapes
  int database = 0;

  /// Without user and password.
  [[nodiscard]] std::string shown() const;
};
/// Error: bad_argument.
[[nodiscard]] Result<RedisAddress> parse_redis_address(const std::string& text);

}  // namespace flashspan::network
