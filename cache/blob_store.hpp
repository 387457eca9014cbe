// blob_store.hpp -- BlobStore: bytes under a name, somewhere else. What a shared store is put upon.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"

namespace flashspan::cache {

/// Thread-safe. Each call ends within a few seconds, whatever has become of the other side. What it returns may be
/// anything: whoever asks checks it.
class BlobStore {
 public:
  BlobStore() = default;
  BlobStore(const BlobStore&) = delete;
  BlobStore& operator=(const BlobStore&) = delete;
  virtual ~BlobStore() = default;

  /// Where it is, for messages; without passwords.
  [[nodiscard]] virtual std::string address() const = 0;
  /// Nothing if there is no such name. Error: io_error.
  [[nodiscard]] virtual Result<std::optional<std::vector<std::byte>>> get(const std::string& name) = 0;
  /// In place of what is there. Error: io_error.
  [[nodiscard]] virtual Result<void> put(const std::string& name, std::span<const std::byte> bytes) = 0;
};

}  // namespace flashspan::cache
