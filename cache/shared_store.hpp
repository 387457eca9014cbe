// shared_store.hpp -- SharedStore: entries in a store of many machines. Its absence costs time and one line, never a
// kernel.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cache/blob_store.hpp"
#include "cache/signed_entry.hpp"
#include "flashspan/core/log.hpp"

namespace flashspan::cache {

/// The name of a key in a store: the key and zeros, 64 hexadecimal digits together, the only names that bazel-remote
/// takes.
[[nodiscard]] std::string blob_name(const KernelKey& key);

/// Thread-safe. After a failure the store is left alone for a while.
class SharedStore {
 public:
  static constexpr std::chrono::seconds default_pause{30};

  SharedStore(std::unique_ptr<BlobStore> blobs, Signer signer, LogSink log,
              std::chrono::milliseconds pause_after_failure = default_pause);

  /// The entry, checked. What is damaged, planted or signed by others is a warning and a miss.
  [[nodiscard]] std::optional<Entry> read(const KernelKey& key);
  void write(const KernelKey& key, const Entry& entry);

 private:
  [[nodiscard]] bool is_paused();
  void note(const Result<void>& outcome);
  void log(LogLevel level, const std::string& line) const;

  std::unique_ptr<BlobStore> blobs_;
  Signer signer_;
  LogSink log_;
  std::chrono::milliseconds pause_;
  std::mutex mutex_;  // guards what follows
  std::optional<std::chrono::steady_clock::time_point> paused_until_;
};

}  // namespace flashspan::cache
