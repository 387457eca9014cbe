// disk_store.hpp -- entries as files in one directory, read and published by any number of processes without locks:
// private temporary file, fsync, atomic rename; every read is checked; a damaged entry is set aside, never served.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/build_turn.hpp"
#include "cache/entry_file.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/log.hpp"

namespace flashspan::cache {

/// One line of a listing.
struct StoredEntry {
  KernelKey key;
  std::int64_t bytes = 0;
  std::int64_t modified_unix_seconds = 0;  ///< published or last read, to within an hour
  std::string metadata;
  bool valid = false;
  std::string damage;  ///< why not valid
};

/// Folder beside the entries, where sources that do not compile are put for their user to look at.
inline constexpr const char* failed_folder = "failed";

/// What another process is given to build a key before this one does so too. A compile takes seconds, on a machine
/// where dozens of processes compile at a time a minute.
inline constexpr std::chrono::milliseconds longest_build_turn = std::chrono::minutes(2);

/// Where a store in `directory` keeps the entry of a key.
[[nodiscard]] std::filesystem::path entry_path(const std::filesystem::path& directory, const KernelKey& key);

/// Thread-safe; `log` may be empty and is called from any thread. Layout: <directory>/ab/cdef....fse for the key
/// abcdef.... Directories that we create are the owner's alone; whatever lies below an existing one takes its
/// permissions.
class DiskStore {
 public:
  /// Creates nothing until the first write. `directory` need not exist or be writable.
  DiskStore(std::filesystem::path directory, LogSink log, std::chrono::milliseconds longest_turn = longest_build_turn);
  DiskStore(DiskStore&& other) noexcept;
  DiskStore& operator=(DiskStore&& other) noexcept;
  ~DiskStore();

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  /// The entry, or nothing if absent, unreadable or damaged. A content error moves the file aside (to
  /// `damaged/`) and warns; an I/O error leaves everything as it is and warns once.
  [[nodiscard]] std::optional<Entry> read(const KernelKey& key);
  /// Publishes the entry. Failure (read-only, full, vanished directory) is returned, never thrown; the entry
  /// then simply is not on disk, and after a permission or read-only error no further write is tried.
  Result<void> write(const KernelKey& key, const Entry& entry);
  /// The turn to build a key, among the processes that share this directory; the entry may be there once one has waited
  /// for it. Null where turns are of no use: nothing can be written here, so that no other process would find what this
  /// one builds.
  [[nodiscard]] std::unique_ptr<BuildTurn> take_turn(const KernelKey& key);
  /// Moves the key's file, if there is one, to `damaged/` and warns with `reason`.
  void set_aside(const KernelKey& key, const std::string& reason);
  /// Every entry file, checked, sorted by key. Moves nothing.
  [[nodiscard]] std::vector<StoredEntry> list();
  /// Removes entries last used before `unix_seconds`; then the least recently used until the rest is no larger
  /// than `max_bytes`. Also sweeps temporary files older than an hour, what failed more than a week ago, the files set
  /// aside and those that killed builders left. Returns the entries removed.
  struct PruneLimits {
    std::optional<std::int64_t> max_bytes;
    std::optional<std::int64_t> older_than_unix_seconds;
  };
  [[nodiscard]] std::vector<StoredEntry> prune(const PruneLimits& limits);

 private:
  struct Latches;
  [[nodiscard]] std::filesystem::path shard_of(const KernelKey& key) const;
  [[nodiscard]] std::filesystem::path path_of(const KernelKey& key) const { return entry_path(directory_, key); }
  void warn(const std::string& line) const;
  int publish(const KernelKey& key, std::span<const std::byte> bytes) const;
  void sweep() const;

  std::filesystem::path directory_;
  LogSink log_;
  std::chrono::milliseconds longest_turn_;
  std::unique_ptr<Latches> latches_;
};

}  // namespace flashspan::cache
