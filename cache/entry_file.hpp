// entry_file.hpp -- the on-disk form of one cache entry: artifact and metadata in one checksummed file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/kernel_key.hpp"

namespace flashspan::cache {

/// Part of every key; raised whenever the format or the meaning of an entry changes.
inline constexpr int entry_format_version = 1;
/// Of a whole entry file. A larger one is damaged, and none is written.
inline constexpr std::int64_t largest_entry_bytes = std::int64_t{1} << 30;

/// What the cache keeps under a key. The cache does not interpret `metadata` (JSON text by convention).
struct Entry {
  std::string metadata;
  std::vector<std::byte> artifact;
  friend bool operator==(const Entry&, const Entry&) = default;
};

[[nodiscard]] std::vector<std::byte> encode(const KernelKey& key, const Entry& entry);
/// The key that an entry file says it is of; nothing if the bytes are too few. Says nothing about the rest.
[[nodiscard]] std::optional<KernelKey> stored_key(std::span<const std::byte> bytes);
/// The entry, if the bytes are complete, undamaged, of this format version and stored under `key`.
/// `why` receives one line on what is wrong otherwise.
[[nodiscard]] std::optional<Entry> decode(const KernelKey& key, std::span<const std::byte> bytes, std::string* why);

}  // namespace flashspan::cache
