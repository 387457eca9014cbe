// kernel_cache.cpp -- least-recently-used memory store and single flight, around the disk store and the builder.
#include "cache/kernel_cache.hpp"

#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace flashspan::cache {

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::memory:
      return "memory";
    case Outcome::disk:
      return "disk";
    case Outcome::layer:
      return "layer";
    case Outcome::shared:
      return "shared";
    case Outcome::service:
      return "service";
    case Outcome::built:
      return "built";
  }
  return "unknown";
}

namespace {

using EntryPointer = std::shared_ptr<const Entry>;

/// Entries by key, bounded by bytes. Not thread-safe.
class MemoryStore {
 public:
  explicit MemoryStore(std::size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  EntryPointer find(const KernelKey& key) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    by_use_.splice(by_use_.begin(), by_use_, found->second);
    return found->second->entry;
  }

  void insert(const KernelKey& key, EntryPointer entry) {
    erase(key);
    used_bytes_ += size_of(*entry);
    by_use_.push_front({key, std::move(entry)});
    by_key_[key] = by_use_.begin();
    while (used_bytes_ > limit_bytes_) erase(by_use_.back().key);
  }

  void erase(KernelKey key) {  // by value: the caller's key may lie in the item that goes
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return;
    used_bytes_ -= size_of(*found->second->entry);
    by_use_.erase(found->second);
    by_key_.erase(found);
  }

 private:
  struct Item {
    KernelKey key;
    EntryPointer entry;
  };
  static std::size_t size_of(const Entry& entry) {
    return sizeof(Entry) + entry.metadata.size() + entry.artifact.size();
  }

  std::list<Item> by_use_;  // most recently used first
  std::unordered_map<KernelKey, std::list<Item>::iterator, KernelKeyHash> by_key_;
  std::size_t limit_bytes_;
  std::size_t used_bytes_ = 0;
};

/// One lookup under way: who comes second waits here.
struct Flight {
  std::condition_variable landed;
  std::optional<Result<EntryPointer>> result;
};

KernelCache::Found found(Entry entry, Outcome outcome) {
  return {std::make_shared<const Entry>(std::move(entry)), outcome};
}

Error builder_threw(const char* what) {
  return {ErrorCode::compile_failed, "kernel builder", "an exception", "a result", what};
}

}  // namespace

struct KernelCache::State {
  State(std::optional<DiskStore> disk_store, std::size_t memory_limit_bytes, LogSink log_sink,
        std::vector<std::unique_ptr<Layer>> read_only, std::unique_ptr<SharedStore> shared_store)
      : disk(std::move(disk_store)),
        layers(std::move(read_only)),
        shared(std::move(shared_store)),
        memory(memory_limit_bytes),
        log(std::move(log_sink)) {}

  /// From the disk store, else from the first layer that has it. Runs without the lock.
  std::optional<Found> read(const KernelKey& key);
  [[nodiscard]] bool is_discarded(const KernelKey& key) {
    const std::lock_guard lock(mutex);
    return discarded.contains(key);
  }

  /// Whether it is there now.
  bool keep_on_disk(const KernelKey& key, const Entry& entry);
  void publish(const KernelKey& key, const Entry& entry) const {
    if (shared) shared->write(key, entry);
  }

  /// From a store, else from the fetcher, else from the builder. Runs without the lock. Never throws.
  Result<Found> make(const KernelKey& key, const Builder& builder, const Fetcher& fetcher) noexcept;
  Result<Found> make_or_throw(const KernelKey& key, const Builder& builder, const Fetcher& fetcher);
  Result<Found> build(const KernelKey& key, const Builder& builder);

  std::optional<DiskStore> disk;
  std::vector<std::unique_ptr<Layer>> layers;
  std::unique_ptr<SharedStore> shared;
  std::mutex mutex;  // guards what follows
  std::unordered_set<KernelKey, KernelKeyHash>
      discarded;  // until a sound one is on disk, not to be taken from anywhere
  MemoryStore memory;
  std::unordered_map<KernelKey, std::shared_ptr<Flight>, KernelKeyHash> flights;
  LogSink log;
};

std::optional<KernelCache::Found> KernelCache::State::read(const KernelKey& key) {
  if (is_discarded(key)) return std::nullopt;
  if (disk) {
    if (auto entry = disk->read(key)) return found(*std::move(entry), Outcome::disk);
  }
  for (const auto& layer : layers) {
    if (auto entry = layer->read(key)) return found(*std::move(entry), Outcome::layer);
  }
  return std::nullopt;
}

Result<KernelCache::Found> KernelCache::State::make_or_throw(const KernelKey& key, const Builder& builder,
                                                             const Fetcher& fetcher) {
  if (auto stored = read(key)) return *std::move(stored);
  if (shared && !is_discarded(key)) {
    if (auto entry = shared->read(key)) {
      keep_on_disk(key, *entry);
      return found(*std::move(entry), Outcome::shared);
    }
  }
  // Before this process takes a turn: the one that it asks may share the folder, and wait for that turn.
  if (auto fetched = fetcher ? fetcher() : std::nullopt) {
    keep_on_disk(key, *fetched);
    publish(key, *fetched);
    return found(*std::move(fetched), Outcome::service);
  }
  return build(key, builder);
}

Result<KernelCache::Found> KernelCache::State::build(const KernelKey& key, const Builder& builder) {
  auto turn = disk ? disk->take_turn(key) : nullptr;
  if (turn && !is_discarded(key)) {
    if (auto entry = disk->read(key)) return found(*std::move(entry), Outcome::disk);  // of whoever had it before
  }
  Result<Entry> built = builder();
  if (!built) return built.error();
  if (keep_on_disk(key, *built)) {
    const std::lock_guard lock(mutex);
    discarded.erase(key);
  }
  turn.reset();  // those who wait for it find the entry on disk, and need not wait for another machine
  publish(key, *built);
  return found(*std::move(built), Outcome::built);
}

bool KernelCache::State::keep_on_disk(const KernelKey& key, const Entry& entry) {
  if (!disk) return false;
  const Result<void> written = disk->write(key, entry);
  if (!written && log) log(LogLevel::warning, "cache: not kept on disk: " + written.error().message());
  return written.has_value();
}

Result<KernelCache::Found> KernelCache::State::make(const KernelKey& key, const Builder& builder,
                                                    const Fetcher& fetcher) noexcept {
  // Whatever happens, those who wait must be told.
  try {
    return make_or_throw(key, builder, fetcher);
  } catch (const std::exception& exception) {
    return builder_threw(exception.what());
  } catch (...) {
    return builder_threw("of a type that is not std::exception");
  }
}

KernelCache::KernelCache(std::optional<DiskStore> disk, std::size_t memory_limit_bytes, LogSink log,
                         std::vector<std::unique_ptr<Layer>> layers, std::unique_ptr<SharedStore> shared)
    : state_(std::make_unique<State>(std::move(disk), memory_limit_bytes, std::move(log), std::move(layers),
                                     std::move(shared))) {}
KernelCache::~KernelCache() = default;

Result<KernelCache::Found> KernelCache::get(const KernelKey& key, const Builder& builder, const Fetcher& fetcher) {
  std::unique_lock lock(state_->mutex);
  if (EntryPointer entry = state_->memory.find(key)) return Found{std::move(entry), Outcome::memory};
  const auto [position, first] = state_->flights.try_emplace(key);
  if (!first) {
    const std::shared_ptr<Flight> flight = position->second;
    flight->landed.wait(lock, [&flight] { return flight->result.has_value(); });
    if (!*flight->result) return flight->result->error();
    return Found{**flight->result, Outcome::memory};
  }
  const auto flight = position->second = std::make_shared<Flight>();
  lock.unlock();

  Result<Found> made = state_->make(key, builder, fetcher);

  lock.lock();
  if (made) {
    state_->memory.insert(key, made->entry);
    flight->result.emplace(made->entry);
  } else {
    flight->result.emplace(made.error());
  }
  state_->flights.erase(key);
  flight->landed.notify_all();
  return made;
}

std::optional<KernelCache::Found> KernelCache::find(const KernelKey& key) {
  {
    const std::lock_guard lock(state_->mutex);
    if (EntryPointer entry = state_->memory.find(key)) return Found{std::move(entry), Outcome::memory};
  }
  std::optional<Found> read = state_->read(key);
  if (!read) return std::nullopt;
  const std::lock_guard lock(state_->mutex);
  state_->memory.insert(key, read->entry);
  return read;
}

std::optional<std::pair<KernelKey, KernelCache::Found>> KernelCache::find_alias(const KernelKey& alias) {
  for (const auto& layer : state_->layers) {
    auto read = layer->read_alias(alias, [this](const KernelKey& key) { return is_discarded(key); });
    if (read) return std::pair{read->first, found(std::move(read->second), Outcome::layer)};
  }
  return std::nullopt;
}

bool KernelCache::is_discarded(const KernelKey& key) const { return state_->is_discarded(key); }

void KernelCache::discard(const KernelKey& key, const std::string& reason) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->memory.erase(key);
    state_->discarded.insert(key);
  }
  if (state_->disk) state_->disk->set_aside(key, reason);
}

}  // namespace flashspan::cache
