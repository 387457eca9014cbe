// kernel_cache.hpp -- memory over disk over a builder: the one place where a kernel is looked up or made.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cache/disk_store.hpp"
#include "cache/kernel_key.hpp"
#include "cache/layers.hpp"

namespace flashspan::cache {

/// Where an entry came from.
enum class Outcome { memory, disk, built };
[[nodiscard]] const char* to_string(Outcome outcome);

class KernelCache {
 public:
  using Builder = std::function<Result<Entry>()>;
  struct Found {
    std::shared_ptr<const Entry> entry;
    Outcome outcome = Outcome::memory;
  };

  /// Without a disk store entries live in memory only. `memory_limit_bytes` bounds the memory store (least
  /// recently used entries go first). `layers` are asked in order, after the disk store, and never written.
  KernelCache(std::optional<DiskStore> disk, std::size_t memory_limit_bytes, LogSink log,
              std::vector<std::unique_ptr<Layer>> layers = {});
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  /// The entry under `key`, built by `builder` if it is nowhere. Threads that ask for one key at the same
  /// time wait for one builder; different keys build in parallel. A failed build is returned to every waiter
  /// and stored nowhere. A failed disk write is a warning, not an error.
  [[nodiscard]] Result<Found> get(const KernelKey& key, const Builder& builder);
  /// The entry under `key` if it is in memory, on disk or in a layer. Waits for no builder.
  [[nodiscard]] std::optional<Found> find(const KernelKey& key);
  /// An entry of a layer by its alias, with its key.
  [[nodiscard]] std::optional<std::pair<KernelKey, Found>> find_alias(const KernelKey& alias);
  /// Forgets `key` in memory, moves its file aside, and asks no layer for it again: for an entry that a device refused
  /// to load.
  void discard(const KernelKey& key, const std::string& reason);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flashspan::cache
