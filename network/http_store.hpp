// http_store.hpp -- BlobStore over PUT and GET, as bazel-remote, S3 gateways and WebDAV servers take them.
#pragma once

#include <memory>
#include <string>

#include "network/network.hpp"

namespace flashspan::network {

/// Error: bad_argument.
[[nodiscard]] Result<std::unique_ptr<cache::BlobStore>> open_http_store(const std::string& url);

}  // namespace flashspan::network
