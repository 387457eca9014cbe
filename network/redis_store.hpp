// redis_store.hpp -- BlobStore over GET and SET of Redis or Valkey (hiredis). The server's own policy evicts: nothing
// is ever removed from here.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "network/network.hpp"

namespace flashspan::network {

/// A call takes `time_out` at most, whatever it has to do for its answer (connect, log in), but for the time in which
/// the system finds the host of a name. Error: bad_argument.
[[nodiscard]] Result<std::unique_ptr<cache::BlobStore>> open_redis_store(
    const std::string& url, std::chrono::milliseconds time_out = std::chrono::seconds(5));

}  // namespace flashspan::network
