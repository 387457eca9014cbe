// kernel_cache.hpp -- memory over disk over a builder: the one place where a kernel is looked up or made.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "cache/disk_store.hpp"
#include "cache/kernel_key.hpp"

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
  /// recently used entries go first).
  KernelCache(std::optional<DiskStore> disk, std::size_t memory_limit_bytes, LogSink log);
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  /// The entry under `key`, built by `builder` if it is nowhere. Threads that ask for one key at the same
  /// time wait for one builder; different keys build in parallel. A failed build is returned to every waiter
  /// and stored nowhere. A failed disk write is a warning, not an error.
  [[nodiscard]] Result<Found> get(const KernelKey& key, const Builder& builder);
  /// The entry under `key` if it is in memory or on disk. Waits for no builder.
  [[nodiscard]] std::optional<Found> find(const KernelKey& key);
  /// Forgets `key` in memory and moves its file aside: for an entry that a device refused to load.
  void discard(const KernelKey& key, const std::string& reason);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flashspan::cache
