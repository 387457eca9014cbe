// entry_report.hpp -- entries of caches and bundles, as the commands print them.
#pragma once

#include <vector>

#include "flashspan/inspect.hpp"
#include "tools/flashspan/report.hpp"

namespace flashspan::tool {

/// The metadata of an entry is JSON; a damaged one's may be anything.
[[nodiscard]] Json metadata_of(const CacheEntry& entry);
[[nodiscard]] Json to_json(const CacheEntry& entry);
void print_entries(const std::vector<CacheEntry>& entries);

}  // namespace flashspan::tool
