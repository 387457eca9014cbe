// http_client.hpp -- HttpClient over libcurl.
#pragma once

#include <memory>
#include <string>

#include "network/network.hpp"

namespace flashspan::network {

/// `token`: sent as "Authorization: Bearer <token>"; empty: none. Error: bad_argument, which names the address.
[[nodiscard]] Result<std::unique_ptr<HttpClient>> open_http_client(const std::string& address,
                                                                   const std::string& token);

}  // namespace flashspan::network
