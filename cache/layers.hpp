// layers.hpp -- stores that a cache reads and never writes, below the one that it writes: folders laid out as a
// DiskStore's, and bundles.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cache/entry_file.hpp"
#include "cache/kernel_key.hpp"
#include "flashspan/core/log.hpp"

namespace flashspan::cache {

using KeyTest = std::function<bool(const KernelKey&)>;

/// One store. Thread-safe. Nothing in it is stamped, moved or removed; a damaged entry is a warning and a miss.
class Layer {
 public:
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;
  [[nodiscard]] virtual std::optional<Entry> read(const KernelKey& key) = 0;
  /// A sound entry with this alias, and its key, which is none that `is_barred`. Folders keep no aliases.
  [[nodiscard]] virtual std::optional<std::pair<KernelKey, Entry>> read_alias(const KernelKey& /*alias*/,
                                                                              const KeyTest& /*is_barred*/) {
    return std::nullopt;
  }
};

/// A layer for every path: a folder, or a bundle's file. One that cannot be opened is a warning, and left out: caches
/// are there for speed, and a process must not fail for want of one.
[[nodiscard]] std::vector<std::unique_ptr<Layer>> open_layers(const std::vector<std::filesystem::path>& paths,
                                                              const LogSink& log);

}  // namespace flashspan::cache
