#include "runtime/api/cache_entries.hpp"

#include <utility>

#include "runtime/api/log_sink.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/api/tuning_files.hpp"
#include "runtime/attention/kernel_metadata.hpp"

namespace flashspan::api {

CacheEntry public_entry(cache::StoredEntry stored) {
  CacheEntry entry;
  entry.key = stored.key.to_text();
  if (const auto metadata = attention::metadata_from_text(stored.metadata)) entry.spec = metadata->summary;
  if (stored.metadata == tuning_metadata) entry.spec = "tuned tiles";
  entry.metadata = std::move(stored.metadata);
  entry.bytes = stored.bytes;
  entry.last_used_unix_seconds = stored.modified_unix_seconds;
  entry.valid = stored.valid;
  entry.damage = std::move(stored.damage);
  return entry;
}

std::vector<CacheEntry> public_entries(std::vector<cache::StoredEntry> stored) {
  std::vector<CacheEntry> entries;
  entries.reserve(stored.size());
  for (cache::StoredEntry& entry : stored) entries.push_back(public_entry(std::move(entry)));
  return entries;
}

Result<cache::DiskStore> open_store(const std::optional<std::string>& cache_dir) {
  const Settings& environment = settings();
  const auto folder = cache_folder(environment, cache_dir);
  if (!folder) {
    return Error{ErrorCode::io_error, "cache directory", "none that can be used",
                 "a directory in FLASHSPAN_CACHE_DIR, XDG_CACHE_HOME or HOME", ""};
  }
  return cache::DiskStore(*folder, standard_log(environment.log));
}

}  // namespace flashspan::api
