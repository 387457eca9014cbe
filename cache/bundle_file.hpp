// bundle_file.hpp -- many entries in one file that is written once: for shipping kernels. Content-addressed and free of
// paths, so it may be moved; each entry in it is a whole entry file, checksum included.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/entry_file.hpp"
#include "cache/kernel_key.hpp"
#include "flashspan/core/error.hpp"

namespace flashspan::cache {

/// An entry and the names that it is found by. Entries may share an alias; the first key serves it.
struct BundledEntry {
  KernelKey key;
  KernelKey alias;  ///< what the entry is for, whatever made it; the cache does not interpret it
  Entry entry;
};

/// Writes the entries, sorted by key and each key once, to a private file that is then renamed to `path`: who has an
/// old file of that name open goes on reading it. Equal entries give equal files. Error: io_error.
[[nodiscard]] Result<void> write_bundle(const std::filesystem::path& path, std::vector<BundledEntry> entries);

/// An open bundle: its index in memory, its entries read when they are asked for. Thread-safe.
class BundleFile {
 public:
  struct Item {
    KernelKey key;
    KernelKey alias;
    std::uint64_t offset = 0;  ///< of the entry file, from the start of the bundle
    std::uint64_t bytes = 0;
  };

  /// Error: io_error, for a file that cannot be read or whose index is damaged.
  static Result<BundleFile> open(const std::filesystem::path& path);

  [[nodiscard]] const std::vector<Item>& items() const { return items_; }  ///< sorted by key
  [[nodiscard]] const Item* find(const KernelKey& key) const;
  /// One for each compiler that made it.
  [[nodiscard]] std::vector<const Item*> find_alias(const KernelKey& alias) const;
  /// The entry, checked. `why` receives one line on what is wrong if there is none.
  [[nodiscard]] std::optional<Entry> read(const Item& item, std::string* why) const;

 private:
  struct Descriptor;
  std::shared_ptr<const Descriptor> file_;
  std::vector<Item> items_;
};

}  // namespace flashspan::cache
