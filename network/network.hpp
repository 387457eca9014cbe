// network.hpp -- Network: what the library asks of other machines and processes. It is a shared object of its own,
// opened on demand (runtime/api/network_plugin.cpp), so that a process that asks for none of it loads none of the
// libraries below it: libcurl, libmicrohttpd, hiredis, libcrypto.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "cache/blob_store.hpp"
#include "cache/signed_entry.hpp"
#include "flashspan/core/error.hpp"

namespace flashspan::network {

struct HttpRequest {
  std::string method = "GET";
  std::string path = "/";
  std::string body;
};

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

/// Thread-safe.
class HttpClient {
 public:
  HttpClient() = default;
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  virtual ~HttpClient() = default;

  [[nodiscard]] virtual const std::string& address() const = 0;
  /// Any status is an answer. Error: io_error; timed_out, after so many seconds altogether.
  [[nodiscard]] virtual Result<HttpAnswer> send(const HttpRequest& request, double time_out_seconds) = 0;
};

/// Listens until it is destroyed, which waits for the requests that are being answered.
class HttpServer {
 public:
  HttpServer() = default;
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  virtual ~HttpServer() = default;

  /// With the port that was taken where 0 was asked for.
  [[nodiscard]] virtual const std::string& address() const = 0;
};

/// Called from several threads at a time, one a connection; must not throw.
using HttpHandler = std::function<HttpAnswer(const HttpRequest&)>;

struct ListenOptions {
  std::string address;     ///< "unix:/path" or "http://host:port"
  std::string token = {};  ///< of "Authorization: Bearer <token>"; empty: none is asked for (Unix sockets only)
  unsigned connections = 256;
  std::size_t largest_body = std::size_t{1} << 20;  ///< bytes; a larger one is answered with 413
};

class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;

  /// `address`: "unix:/path", "http://host:port" or "https://..."; connects to nobody yet. Error: bad_argument.
  [[nodiscard]] virtual Result<std::unique_ptr<HttpClient>> open_client(const std::string& address,
                                                                        const std::string& token) = 0;
  /// A Unix socket is readable and writable by its owner only. Error: bad_argument; io_error, also where another server
  /// listens.
  [[nodiscard]] virtual Result<std::unique_ptr<HttpServer>> listen(const ListenOptions& options,
                                                                   HttpHandler handler) = 0;
  /// `url`: "redis://[[user:]password@]host[:port][/database]", "redis+unix:///path", or
  /// "http(s)://[user:password@]host[:port][/path]", where names are put behind the path by PUT and fetched by GET;
  /// in user and password, "%2F" stands for '/' and "%25" for '%'. Connects to nobody yet. Error: bad_argument.
  [[nodiscard]] virtual Result<std::unique_ptr<cache::BlobStore>> open_store(const std::string& url) = 0;
  /// Signs with HMAC-SHA256 under the secret. Error: unsupported, where libcrypto refuses to.
  [[nodiscard]] virtual Result<cache::Signer> signer(std::span<const std::byte> secret) = 0;
};

}  // namespace flashspan::network
