#include "runtime/api/cache_entries.hpp"

#include <string>
#include <utility>

#include "runtime/api/log_sink.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/api/triton_entry.hpp"
#include "runtime/api/tuning_files.hpp"
#include "runtime/attention/kernel_metadata.hpp"

namespace flashspan::api {

namespace {

/// One line on what an entry is.
std::string summary_of(const std::string& metadata) {
  if (const auto kernel = attention::metadata_from_text(metadata)) return kernel->summary;
  if (metadata == tuning_metadata) return "tuned tiles";
  if (const auto kernel = triton_kernel_of({metadata, {}})) {
    return "triton " + to_string(kernel->arch) + " " + kernel->name;
  }
  return "";
}

}  // namespace

CacheEntry public_entry(cache::StoredEntry stored) {
  CacheEntry entry;
  entry.key = stored.key.to_text();
  entry.spec = summary_of(stored.metadata);
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
