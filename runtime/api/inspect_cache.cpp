// inspect_cache.cpp -- what is in the disk cache, and what is to leave it.
#include <chrono>
#include <string>
#include <utility>

#include "flashspan/inspect.hpp"
#include "runtime/api/cache_entries.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/attention/tensor_rule.hpp"

namespace flashspan {

namespace {

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
  auto store = api::open_store(cache_dir);
  if (!store) return store.error();
  return api::public_entries(store->list());
}

Result<std::vector<CacheEntry>> prune_cache(const std::optional<std::string>& cache_dir,
                                            std::optional<std::int64_t> max_bytes,
                                            std::optional<std::int64_t> older_than_seconds) {
  if (auto limit = check_limit("max_bytes", max_bytes); !limit) return limit.error();
  if (auto limit = check_limit("older_than_seconds", older_than_seconds); !limit) return limit.error();
  auto store = api::open_store(cache_dir);
  if (!store) return store.error();
  cache::DiskStore::PruneLimits limits;
  limits.max_bytes = max_bytes;
  if (older_than_seconds) {
    using namespace std::chrono;
    const auto now = duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
    limits.older_than_unix_seconds = now - *older_than_seconds;
  }
  return api::public_entries(store->prune(limits));
}

}  // namespace flashspan
