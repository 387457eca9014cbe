// sample_entries.hpp -- entries whose contents follow from a number, so that any process can tell right from wrong.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "cache/entry_file.hpp"

namespace flashspan::cache {

/// Bytes that a cache may keep in memory: more than a test's entries have.
inline constexpr std::size_t plenty = std::size_t{64} << 20;

inline KernelKey sample_key(std::uint64_t number) {
  const std::string text = "sample " + std::to_string(number);
  const std::array<std::string_view, 1> parts{text};
  return KernelKey::of(parts);
}

/// `artifact_bytes` random bytes, the same for the same number.
inline Entry sample_entry(std::uint64_t number, std::size_t artifact_bytes) {
  Entry entry;
  entry.metadata = "{\"sample\": " + std::to_string(number) + "}";
  std::mt19937_64 random(number);
  entry.artifact.resize(artifact_bytes);
  for (std::size_t at = 0; at < artifact_bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t eight = random();
    std::memcpy(entry.artifact.data() + at, &eight, std::min(sizeof(eight), artifact_bytes - at));
  }
  return entry;
}

/// Sizes differ from number to number, from nothing to about 200 KB.
inline Entry sample_entry(std::uint64_t number) { return sample_entry(number, number * 7919 % 200000); }

}  // namespace flashspan::cache
