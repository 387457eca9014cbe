// http_server.hpp -- HttpServer over libmicrohttpd: one thread a connection.
#pragma once

#include <memory>

#include "network/network.hpp"

namespace flashspan::network {

/// Error: bad_argument, for an address that does not read and for TCP without a token; io_error.
[[nodiscard]] Result<std::unique_ptr<HttpServer>> open_http_server(const ListenOptions& options, HttpHandler handler);

}  // namespace flashspan::network
