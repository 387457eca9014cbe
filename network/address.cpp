#include "network/address.hpp"

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "network/shown_address.hpp"

namespace flashspan::network {
namespace {

constexpr int largest_port = 65535;

struct HostAndPort {
  std::string host;
  int port = 0;
};

std::optional<int> whole_number(std::string_view text, int largest) {
  int number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size() || number < 0 || number > largest) return std::nullopt;
  return number;
}

/// "host", "host:port", "[::1]:port".
std::optional<HostAndPort> split_host(std::string_view text, int usual_port) {
  std::string_view host = text, port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon);
  }
  if (host.empty() || host.find_first_of(" \t\r\n@/?#") != std::string_view::npos) return std::nullopt;
  if (port.empty()) return HostAndPort{std::string(host), usual_port};
  const auto number = port.starts_with(':') ? whole_number(port.substr(1), largest_port) : std::nullopt;
  if (!number) return std::nullopt;
  return HostAndPort{std::string(host), *number};
}

/// The text behind `start`, if that is what it begins with.
std::optional<std::string_view> behind(std::string_view text, std::string_view start) {
  if (!text.starts_with(start)) return std::nullopt;
  return text.substr(start.size());
}

/// With the byte that "%2F" names in its place; nothing if a '%' has no two hexadecimal digits behind it.
std::optional<std::string> without_escapes(std::string_view text) {
  constexpr std::size_t digits = 2;
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const std::string_view hexadecimal = text.substr(i + 1, digits);
    unsigned byte = 0;
    const char* const end = hexadecimal.data() + hexadecimal.size();
    if (hexadecimal.size() != digits || std::from_chars(hexadecimal.data(), end, byte, 16).ptr != end) {
      return std::nullopt;
    }
    decoded += static_cast<char>(byte);
    i += digits;
  }
  return decoded;
}

struct Login {
  std::string user, password;
};

/// "user:password" or "password". An escape may be a colon of the user's.
std::optional<Login> read_login(std::string_view text) {
  const std::size_t colon = text.find(':');
  const bool has_user = colon != std::string_view::npos;
  auto user = without_escapes(text.substr(0, has_user ? colon : 0));
  auto password = without_escapes(text.substr(has_user ? colon + 1 : 0));
  if (!user || !password) return std::nullopt;
  return Login{*std::move(user), *std::move(password)};
}

/// As HTTP's basic authentication takes it, where a user ends at the first colon; libcurl's text ends at a zero.
std::optional<std::string> read_http_login(std::string_view text) {
  const auto login = read_login(text);
  if (!login || text.find(':') == std::string_view::npos) return std::nullopt;
  std::string joined = login->user + ":" + login->password;
  constexpr std::string_view refused("\r\n\0", 3);
  if (login->user.find(':') != std::string::npos || joined.find_first_of(refused) != std::string::npos) {
    return std::nullopt;
  }
  return joined;
}

bool names_a_socket(std::string_view path) {
  constexpr std::size_t longest = 107;  // sockaddr_un::sun_path, with its end
  return path.starts_with('/') && path.size() <= longest;
}

}  // namespace

std::string HttpAddress::base() const {
  const bool bracketed = host.find(':') != std::string::npos;
  return scheme + "://" + (bracketed ? "[" + host + "]" : host) + ":" + std::to_string(port) + path;
}

Result<HttpAddress> parse_http_address(const std::string& argument, const std::string& text) {
  const Error malformed{ErrorCode::bad_argument, argument, text.empty() ? "nothing" : shown_address(text),
                        "unix:/path of at most 107 bytes, http://[user:password@]host:port or https://... (a '%' in "
                        "user or password is written %25)",
                        ""};
  HttpAddress address;
  if (const auto socket = behind(text, "unix:")) {
    if (!names_a_socket(*socket)) return malformed;
    address = {std::string(*socket), "http", "localhost", 80, "", ""};
    return address;
  }
  for (const auto& [scheme, port] : {std::pair{"http", 80}, std::pair{"https", 443}}) {
    const auto rest = behind(text, std::string(scheme) + "://");
    if (!rest) continue;
    const std::size_t slash = rest->find('/');
    std::string_view authority = rest->substr(0, slash);
    std::optional<std::string> login("");
    if (const std::size_t at = authority.rfind('@'); at != std::string_view::npos) {
      login = read_http_login(authority.substr(0, at));
      authority = authority.substr(at + 1);
    }
    const auto place = split_host(authority, port);
    std::string path(slash == std::string_view::npos ? "" : rest->substr(slash));
    if (!login || !place || path.find_first_of(" \t\r\n?#") != std::string::npos) return malformed;
    while (path.ends_with('/')) path.pop_back();
    address = {"", scheme, place->host, place->port, std::move(path), *std::move(login)};
    return address;
  }
  return malformed;
}

std::string RedisAddress::shown() const {
  return socket.empty() ? "redis://" + host + ":" + std::to_string(port) + "/" + std::to_string(database)
                        : "redis+unix://" + socket;
}

Result<RedisAddress> parse_redis_address(const std::string& text) {
  const Error malformed{ErrorCode::bad_argument, "shared store", "a redis address that does not read",
                        "redis://[[user:]password@]host[:port][/database] (a '%' in user or password is written %25) "
                        "or redis+unix:///path",
                        ""};
  constexpr int usual_port = 6379;
  constexpr int largest_database = 1 << 20;
  RedisAddress address;
  if (const auto socket = behind(text, "redis+unix://")) {
    if (!names_a_socket(*socket)) return malformed;
    address.socket = *socket;
    return address;
  }
  auto rest = behind(text, "redis://");
  if (!rest) return malformed;
  if (const std::size_t at = rest->rfind('@'); at != std::string_view::npos) {
    auto login = read_login(rest->substr(0, at));
    if (!login) return malformed;
    address.user = std::move(login->user);
    address.password = std::move(login->password);
    rest = rest->substr(at + 1);
  }
  const std::size_t slash = rest->find('/');
  const auto place = split_host(rest->substr(0, slash), usual_port);
  if (!place) return malformed;
  address.host = place->host;
  address.port = place->port;
  const std::string_view database = slash == std::string_view::npos ? "" : rest->substr(slash + 1);
  if (database.empty()) return address;
  const auto number = whole_number(database, largest_database);
  if (!number) return malformed;
  address.database = *number;
  return address;
}

}  // namespace flashspan::network
