// redis_store.hpp -- BlobStore over GET and SET of Redis or Valkey (hiredis). The server's own policy evicts: nothing
// is ever removed from here.
#pragma once

#include <memory>
#include <string>

#include "network/network.hpp"

namespace flashspan::network {

/// Error: bad_argument.
[[nodiscard]] Result<std::unique_ptr<cache::BlobStore>> open_redis_store(const std::string& url);

}  // namespace flashspan::network
