// entry_file.cpp -- layout: a 64-byte header (magic, version, key, lengths, checksum), metadata, artifact.
#include "cache/entry_file.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "cache/little_endian.hpp"

namespace flashspan::cache {
namespace {

constexpr std::string_view magic = "flashspn";

// Offsets in the header; numbers are little endian.
constexpr std::size_t version_offset = 8;           // 8 bytes
constexpr std::size_t key_offset = 16;              // 16 bytes
constexpr std::size_t metadata_length_offset = 32;  // 8 bytes
constexpr std::size_t artifact_length_offset = 40;  // 8 bytes
constexpr std::size_t checksum_offset = 48;         // 16 bytes: over the header before it, metadata and artifact
constexpr std::size_t header_bytes = 64;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

KernelKey checksum(std::span<const std::byte> header, std::string_view metadata, std::span<const std::byte> artifact) {
  const std::array<std::string_view, 3> parts{as_text(header.first(checksum_offset)), metadata, as_text(artifact)};
  return KernelKey::of(parts);
}

KernelKey key_at(const std::byte* from) {
  KernelKey key;
  std::memcpy(key.bytes.data(), from, key.bytes.size());
  return key;
}

/// Empty if the fixed part of the header agrees with the file's size.
std::string header_fault(std::span<const std::byte> bytes) {
  if (bytes.size() < header_bytes) return std::to_string(bytes.size()) + " bytes are less than a header";
  if (as_text(bytes.first(magic.size())) != magic) return "does not start as an entry does";
  const std::uint64_t version = get_number(bytes.subspan(version_offset, number_bytes));
  if (version != static_cast<std::uint64_t>(entry_format_version)) {
    return "format version " + std::to_string(version) + " instead of " + std::to_string(entry_format_version);
  }
  const std::uint64_t metadata_length = get_number(bytes.subspan(metadata_length_offset, number_bytes));
  const std::uint64_t artifact_length = get_number(bytes.subspan(artifact_length_offset, number_bytes));
  const std::uint64_t contents = bytes.size() - header_bytes;
  if (metadata_length > contents || artifact_length != contents - metadata_length) {
    return std::to_string(bytes.size()) + " bytes are not the length that the header gives";
  }
  return {};
}

}  // namespace

std::vector<std::byte> encode(const KernelKey& key, const Entry& entry) {
  std::vector<std::byte> bytes(header_bytes + entry.metadata.size() + entry.artifact.size());
  const std::span<std::byte> header = std::span(bytes).first(header_bytes);
  std::memcpy(bytes.data(), magic.data(), magic.size());
  put_number(header.subspan(version_offset, number_bytes), entry_format_version);
  std::memcpy(&bytes[key_offset], key.bytes.data(), key.bytes.size());
  put_number(header.subspan(metadata_length_offset, number_bytes), entry.metadata.size());
  put_number(header.subspan(artifact_length_offset, number_bytes), entry.artifact.size());
  const KernelKey sum = checksum(bytes, entry.metadata, entry.artifact);
  std::memcpy(&bytes[checksum_offset], sum.bytes.data(), sum.bytes.size());
  std::byte* const metadata = bytes.data() + header_bytes;
  if (!entry.metadata.empty()) std::memcpy(metadata, entry.metadata.data(), entry.metadata.size());
  if (!entry.artifact.empty()) {
    std::memcpy(metadata + entry.metadata.size(), entry.artifact.data(), entry.artifact.size());
  }
  return bytes;
}

std::optional<KernelKey> stored_key(std::span<const std::byte> bytes) {
  if (bytes.size() < header_bytes) return std::nullopt;
  return key_at(&bytes[key_offset]);
}

std::optional<Entry> decode(const KernelKey& key, std::span<const std::byte> bytes, std::string* why) {
  const auto refuse = [why](std::string reason) {
    if (why != nullptr) *why = std::move(reason);
    return std::nullopt;
  };
  if (std::string fault = header_fault(bytes); !fault.empty()) return refuse(std::move(fault));
  const auto contents = bytes.subspan(header_bytes);
  const auto metadata =
      contents.first(static_cast<std::size_t>(get_number(bytes.subspan(metadata_length_offset, number_bytes))));
  const auto artifact = contents.subspan(metadata.size());
  if (checksum(bytes, as_text(metadata), artifact) != key_at(&bytes[checksum_offset])) {
    return refuse("contents do not match their checksum");
  }
  if (const KernelKey stored = key_at(&bytes[key_offset]); stored != key) {
    return refuse("holds the entry of another key, " + stored.to_text());
  }
  return Entry{std::string(as_text(metadata)), {artifact.begin(), artifact.end()}};
}

}  // namespace flashspan::cache
