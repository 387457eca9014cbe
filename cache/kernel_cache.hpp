// kernel_cache.hpp -- memory over disk over a builder: the one place where a kernel is looked up or made.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cache/disk_store.hpp"
#include "cache/kernel_key.hpp"
#include "cache/layers.hpp"
#include "cache/shared_store.hpp"

namespace flashspan::cache {

/// Where an entry came from.
enum class Outcome {
  memory,
  disk,     ///< the store of this cache
  layer,    ///< a read-only store below it
  shared,   ///< a store of many machines
  service,  ///< a compile service
  built,
};
inline constexpr std::size_t outcome_count = 6;
[[nodiscard]] const char* to_string(Outcome outcome);

class KernelCache {
 public:
  using Builder = std::function<Result<Entry>()>;
  /// Asks somebody else to build it.
  using Fetcher = std::function<std::optional<Entry>()>;
  struct Found {
    std::shared_ptr<const Entry> entry;
    Outcome outcome = Outcome::memory;
  };

  /// Without a disk store entries live in memory only. `memory_limit_bytes` bounds the memory store (least
  /// recently used entries go first). `layers` are asked in order, after the disk store, and never written. `shared`,
  /// if there is one, is asked last, and only by get(); what it has goes to disk, and what is built goes to it.
  KernelCache(std::optional<DiskStore> disk, std::size_t memory_limit_bytes, LogSink log,
              std::vector<std::unique_ptr<Layer>> layers = {}, std::unique_ptr<SharedStore> shared = nullptr);
  ~KernelCache();
  KernelCache(const KernelCache&) = delete;
  KernelCache& operator=(const KernelCache&) = delete;

  /// The entry under `key`, fetched or built if it is nowhere. Threads that ask for one key at the same time wait for
  /// one builder, and so do, for a limited time, processes of one machine that share a disk store (BuildTurn);
  /// different keys build in parallel. A failed build is returned to every waiting thread and stored nowhere. A failed
  /// disk write is a warning, not an error. `fetcher` may be empty.
  [[nodiscard]] Result<Found> get(const KernelKey& key, const Builder& builder, const Fetcher& fetcher = {});
  /// The entry under `key` if it is in memory, on disk or in a layer. Waits for no builder, and for no other machine.
  [[nodiscard]] std::optional<Found> find(const KernelKey& key);
  /// An entry of a layer by its alias, with its key.
  [[nodiscard]] std::optional<std::pair<KernelKey, Found>> find_alias(const KernelKey& alias);
  /// Forgets `key` in memory, moves its file aside, and takes it from no store again until one that was built is on
  /// disk: for an entry that a device refused to load.
  void discard(const KernelKey& key, const std::string& reason);
  [[nodiscard]] bool is_discarded(const KernelKey& key) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace flashspan::cache
