// inspect_cache.cpp -- what is in the disk cache, and what is to leave it.
#include <chrono>
#include <string>
#include <utility>

#include "cache/disk_store.hpp"
#include "flashspan/inspect.hpp"
#include "runtime/api/log_sink.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/attention/kernel_metadata.hpp"
#include "runtime/attention/tensor_rule.hpp"

namespace flashspan {

namespace {

CacheEntry to_public(cache::StoredEntry stored) {
  CacheEntry entry;
  entry.key = stored.key.to_text();
  if (const auto metadata = attention::metadata_from_text(stored.metadata)) entry.spec = metadata->summary;
  entry.metadata = std::move(stored.metadata);
  entry.bytes = stored.bytes;
  entry.last_used_unix_seconds = stored.modified_unix_seconds;
  entry.valid = stored.valid;
  entry.damage = std::move(stored.damage);
  return entry;
}

std::vector<CacheEntry> to_public(std::vector<cache::StoredEntry> stored) {
  std::vector<CacheEntry> entries;
  entries.reserve(stored.size());
  for (cache::StoredEntry& entry : stored) entries.push_back(to_public(std::move(entry)));
  return entries;
}

Result<cache::DiskStore> open_store(const std::optional<std::string>& cache_dir) {
  const api::Settings& settings = api::settings();
  const auto folder = api::cache_folder(settings, cache_dir);
  if (!folder) {
    return Error{ErrorCode::io_error, "cache directory", "none that can be used",
                 "a directory in FLASHSPAN_CACHE_DIR, XDG_CACHE_HOME or HOME", ""};
  }
  return cache::DiskStore(*folder, api::standard_log(settings.log));
}

Result<void> check_limit(const char* argument, const std::optional<std::int64_t>& limit) {
  if (!limit || *limit >= 0) return {};
  return attention::bad_argument(argument, std::to_string(*limit), "0 or more");
}

}  // namespace

std::string cache_directory(const std::optional<std::string>& cache_dir) {
  const auto folder = api::cache_folder(api::settings(), cache_dir);
  return folder ? folder->string() : "";
}

Result<std::vector<CacheEntry>> list_cache(const std::optional<std::string>& cache_dir) {
  auto store = open_store(cache_dir);
  if (!store) return store.error();
  return to_public(store->list());
}

Result<std::vector<CacheEntry>> prune_cache(const std::optional<std::string>& cache_dir,
                                            std::optional<std::int64_t> max_bytes,
                                            std::optional<std::int64_t> older_than_seconds) {
  if (auto limit = check_limit("max_bytes", max_bytes); !limit) return limit.error();
  if (auto limit = check_limit("older_than_seconds", older_than_seconds); !limit) return limit.error();
  auto store = open_store(cache_dir);
  if (!store) return store.error();
  cache::DiskStore::PruneLimits limits;
  limits.max_bytes = max_bytes;
  if (older_than_seconds) {
    using namespace std::chrono;
    const auto now = duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
    limits.older_than_unix_seconds = now - *older_than_seconds;
  }
  return to_public(store->prune(limits));
}

}  // namespace flashspan
