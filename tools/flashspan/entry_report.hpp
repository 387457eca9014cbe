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
[[nodiscard]] std::vector<CacheEntry> damaged_among(const std::vector<CacheEntry>& entries);
/// Ok if none of the entries is damaged; else prints how many of `argument` are, what is taken being `takes`.
[[nodiscard]] ExitCode report_damaged(const char* argument, const std::vector<CacheEntry>& entries, const char* takes);

}  // namespace flashspan::tool
