// bundle.hpp -- bundles: compiled kernels in one file, to be shipped and used as a read-only layer below the cache
// (AttentionOptions::cache_path, FLASHSPAN_CACHE_PATH). A bundle holds no path and may be moved; every entry in it is
// checked whenever it is read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/inspect.hpp"

#pragma GCC visibility push(default)
namespace flashspan {

/// What is in the bundle, each entry checked. Error: io_error.
[[nodiscard]] Result<std::vector<CacheEntry>> list_bundle(const std::string& path);

/// Writes the whole entries of a cache into a bundle, in place of what is there.
/// `keys`: the starts of the keys to take; empty: all. Returns all of these, damaged ones, which are left out, as not
/// valid. Error: io_error; bad_argument, for a key that no entry's begins with.
[[nodiscard]] Result<std::vector<CacheEntry>> export_cache(const std::optional<std::string>& cache_dir,
                                                           const std::vector<std::string>& keys,
                                                           const std::string& path);
/// Writes the whole entries of a bundle into a cache. Returns all, damaged ones, which are left out, as not valid.
/// Error: io_error.
[[nodiscard]] Result<std::vector<CacheEntry>> import_bundle(const std::string& path,
                                                            const std::optional<std::string>& cache_dir);
/// Writes the whole entries of all bundles into one; of entries with one key, which are alike, that of the first.
/// Returns all; those that no bundle has undamaged are left out, and not valid. Error: io_error.
[[nodiscard]] Result<std::vector<CacheEntry>> merge_bundles(const std::vector<std::string>& paths,
                                                            const std::string& output);

}  // namespace flashspan
#pragma GCC visibility pop
