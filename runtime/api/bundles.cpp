// bundles.cpp -- entries between caches and bundles.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/bundle_file.hpp"
#include "flashspan/bundle.hpp"
#include "flashspan/tuning.hpp"
#include "runtime/api/cache_entries.hpp"
#include "runtime/api/tuning_files.hpp"
#include "runtime/attention/kernel_metadata.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/attention/tuning_table.hpp"

namespace flashspan {

namespace {

/// The alias of an entry whose metadata name none is its key.
cache::BundledEntry bundled(const cache::KernelKey& key, cache::Entry entry) {
  cache::KernelKey alias = key;
  if (api::tuning_text(entry)) {
    alias = api::tuning_alias();
  } else if (const auto metadata = attention::metadata_from_text(entry.metadata)) {
    alias = cache::KernelKey::from_text(metadata->alias).value_or(key);
  }
  return {key, alias, std::move(entry)};
}

/// One item of a bundle as a listing shows it, and its entry if that is whole.
struct ReadItem {
  cache::StoredEntry listed;
  std::optional<cache::Entry> entry;
};

ReadItem read_item(const cache::BundleFile& bundle, const cache::BundleFile::Item& item) {
  ReadItem read;
  read.listed.key = item.key;
  read.listed.bytes = static_cast<std::int64_t>(item.bytes);
  read.entry = bundle.read(item, &read.listed.damage);
  read.listed.valid = read.entry.has_value();
  if (read.entry) read.listed.metadata = read.entry->metadata;
  return read;
}

/// A tuning file joins that of the cache; everything else is an entry of it. Error: io_error.
Result<void> import_entry(cache::DiskStore& store, const cache::KernelKey& key, const cache::Entry& entry) {
  const auto tunings = api::tuning_text(entry);
  if (!tunings) return store.write(key, entry);
  return merge_tuning_records((store.directory() / api::tuning_file_name).string(),
                              attention::records_from_text(*tunings));
}

/// The tuning file of a cache, if it has one, as an entry of a bundle.
std::optional<cache::BundledEntry> tunings_of(const cache::DiskStore& store) {
  const auto records = read_tuning_file((store.directory() / api::tuning_file_name).string());
  if (!records || records->empty()) return std::nullopt;
  const std::string text = attention::merged_text("", *records);
  return cache::BundledEntry{api::tuning_key(text), api::tuning_alias(), api::tuning_entry(text)};
}

/// Calls visit(item read) for every item of the bundle. Error: as BundleFile::open(), and what visit() returns.
template <typename Visit>
Result<void> for_each_item(const std::string& path, const Visit& visit) {
  const auto bundle = cache::BundleFile::open(path);
  if (!bundle) return bundle.error();
  for (const cache::BundleFile::Item& item : bundle->items()) {
    if (Result<void> visited = visit(read_item(*bundle, item)); !visited) return visited;
  }
  return {};
}

/// Whether the key begins with one of `starts`; any key does if there are none.
bool is_wanted(const cache::KernelKey& key, const std::vector<std::string>& starts) {
  const std::string text = key.to_text();
  return starts.empty() ||
         std::ranges::any_of(starts, [&](const std::string& start) { return text.starts_with(start); });
}

Result<void> check_starts(const std::vector<std::string>& starts, const std::vector<cache::StoredEntry>& entries) {
  for (const std::string& start : starts) {
    const bool found =
        std::ranges::any_of(entries, [&](const auto& entry) { return entry.key.to_text().starts_with(start); });
    if (!found) return attention::bad_argument("KEY", start, "the start of a key in the cache");
  }
  return {};
}

}  // namespace

Result<std::vector<CacheEntry>> list_bundle(const std::string& path) {
  std::vector<CacheEntry> entries;
  const auto done = for_each_item(path, [&](ReadItem item) -> Result<void> {
    entries.push_back(api::public_entry(std::move(item.listed)));
    return {};
  });
  if (!done) return done.error();
  return entries;
}

Result<std::vector<CacheEntry>> export_cache(const std::optional<std::string>& cache_dir,
                                             const std::vector<std::string>& keys, const std::string& path) {
  auto store = api::open_store(cache_dir);
  if (!store) return store.error();
  std::vector<cache::StoredEntry> listed = store->list();
  if (auto known = check_starts(keys, listed); !known) return known.error();
  std::vector<cache::BundledEntry> entries;
  std::vector<CacheEntry> wanted;
  for (cache::StoredEntry& candidate : listed) {
    if (!is_wanted(candidate.key, keys)) continue;
    if (candidate.valid) {
      auto entry = store->read(candidate.key);
      if (!entry) continue;  // pruned meanwhile
      entries.push_back(bundled(candidate.key, *std::move(entry)));
    }
    wanted.push_back(api::public_entry(std::move(candidate)));
  }
  if (auto tunings = keys.empty() ? tunings_of(*store) : std::nullopt) {
    cache::StoredEntry listed;
    listed.key = tunings->key;
    listed.bytes = static_cast<std::int64_t>(tunings->entry.artifact.size());
    listed.metadata = tunings->entry.metadata;
    listed.valid = true;
    wanted.push_back(api::public_entry(std::move(listed)));
    entries.push_back(*std::move(tunings));
  }
  if (auto done = cache::write_bundle(path, std::move(entries)); !done) return done.error();
  return wanted;
}

Result<std::vector<CacheEntry>> import_bundle(const std::string& path, const std::optional<std::string>& cache_dir) {
  auto store = api::open_store(cache_dir);
  if (!store) return store.error();
  std::vector<CacheEntry> entries;
  const auto done = for_each_item(path, [&](ReadItem item) -> Result<void> {
    if (item.entry) {
      if (auto written = import_entry(*store, item.listed.key, *item.entry); !written) return written;
    }
    entries.push_back(api::public_entry(std::move(item.listed)));
    return {};
  });
  if (!done) return done.error();
  return entries;
}

Result<std::vector<CacheEntry>> merge_bundles(const std::vector<std::string>& paths, const std::string& output) {
  std::vector<cache::BundledEntry> entries;
  std::map<cache::KernelKey, cache::StoredEntry> by_key;
  for (const std::string& path : paths) {
    const auto done = for_each_item(path, [&](ReadItem item) -> Result<void> {
      if (item.entry) entries.push_back(bundled(item.listed.key, *std::move(item.entry)));
      cache::StoredEntry& known = by_key[item.listed.key];
      if (!known.valid) known = std::move(item.listed);
      return {};
    });
    if (!done) return done.error();
  }
  if (auto done = cache::write_bundle(output, std::move(entries)); !done) return done.error();
  std::vector<CacheEntry> all;
  all.reserve(by_key.size());
  for (auto& [key, listed] : by_key) all.push_back(api::public_entry(std::move(listed)));
  return all;
}

}  // namespace flashspan
