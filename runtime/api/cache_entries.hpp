// cache_entries.hpp -- stored entries as the public API shows them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/disk_store.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/inspect.hpp"

namespace flashspan::api {

[[nodiscard]] CacheEntry public_entry(cache::StoredEntry stored);
[[nodiscard]] std::vector<CacheEntry> public_entries(std::vector<cache::StoredEntry> stored);

/// The store in the folder that `cache_dir` and the environment say. Error: io_error, if there is none.
[[nodiscard]] Result<cache::DiskStore> open_store(const std::optional<std::string>& cache_dir);

}  // namespace flashspan::api
