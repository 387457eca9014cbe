// bundle_file.cpp -- layout: a 48-byte header (magic, version, number of entries, checksum of header and index), the
// index, then the entry files one behind another.
#include "cache/bundle_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "cache/whole_file.hpp"

namespace flashspan::cache {
namespace {

constexpr std::string_view magic = "flashbdl";
constexpr std::uint64_t format_version = 1;

// Offsets in the header; numbers are little endian.
constexpr std::size_t version_offset = 8;  // 8 bytes
constexpr std::size_t count_offset = 16;   // 8 bytes, then 8 zero bytes
constexpr std::size_t checksum_offset = 32;
constexpr std::size_t header_bytes = 48;
constexpr std::size_t item_bytes = 48;  // key, alias, offset, length
constexpr std::uint64_t most_items = std::uint64_t{1} << 20;
constexpr std::uint64_t largest_entry_bytes = std::uint64_t{1} << 30;

std::string describe(int error) { return std::error_code(error, std::generic_category()).message(); }

Error unusable(const std::filesystem::path& path, const std::string& got) {
  return Error{ErrorCode::io_error, "bundle", path.string() + ": " + got, "a whole bundle of this format", ""};
}

void put_number(std::byte* to, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) to[i] = static_cast<std::byte>(value >> (8 * i) & 0xff);
}

std::uint64_t get_number(const std::byte* from) {
  std::uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  return value;
}

/// Of the header before its checksum, and of the index.
KernelKey checksum(std::span<const std::byte> header, std::span<const std::byte> index) {
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const std::array<std::string_view, 2> parts{text(header.first(checksum_offset)), text(index)};
  return KernelKey::of(parts);
}

void put_item(std::byte* to, const BundleFile::Item& item) {
  std::memcpy(to, item.key.bytes.data(), item.key.bytes.size());
  std::memcpy(to + 16, item.alias.bytes.data(), item.alias.bytes.size());
  put_number(to + 32, item.offset);
  put_number(to + 40, item.bytes);
}

BundleFile::Item get_item(const std::byte* from) {
  BundleFile::Item item;
  std::memcpy(item.key.bytes.data(), from, item.key.bytes.size());
  std::memcpy(item.alias.bytes.data(), from + 16, item.alias.bytes.size());
  item.offset = get_number(from + 32);
  item.bytes = get_number(from + 40);
  return item;
}

std::vector<std::byte> encode_bundle(const std::map<KernelKey, BundledEntry>& entries) {
  std::vector<std::byte> bytes(header_bytes + entries.size() * item_bytes);
  std::size_t item = header_bytes;
  for (const auto& [key, bundled] : entries) {
    const std::vector<std::byte> file = encode(key, bundled.entry);
    put_item(&bytes[item], {key, bundled.alias, bytes.size(), file.size()});
    item += item_bytes;
    bytes.insert(bytes.end(), file.begin(), file.end());
  }
  std::memcpy(bytes.data(), magic.data(), magic.size());
  put_number(&bytes[version_offset], format_version);
  put_number(&bytes[count_offset], entries.size());
  const auto index = std::span(bytes).subspan(header_bytes, entries.size() * item_bytes);
  const KernelKey sum = checksum(bytes, index);
  std::memcpy(&bytes[checksum_offset], sum.bytes.data(), sum.bytes.size());
  return bytes;
}

}  // namespace

Result<void> write_bundle(const std::filesystem::path& path, std::vector<BundledEntry> entries) {
  std::map<KernelKey, BundledEntry> by_key;  // the first of each
  for (BundledEntry& entry : entries) by_key.try_emplace(entry.key, std::move(entry));
  const auto failure = [&path](int error) {
    return Error{ErrorCode::io_error, "bundle", path.string() + ": " + describe(error),
                 "a file in a folder that can be written to", ""};
  };
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  std::filesystem::path temporary;
  if (const int error = create_temporary(folder, encode_bundle(by_key), temporary); error != 0) return failure(error);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return failure(error);
  }
  sync_directory(folder);
  return {};
}

struct BundleFile::Descriptor {
  explicit Descriptor(int opened) : number(opened) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  /// Nothing if the file does not hold all of them.
  [[nodiscard]] std::optional<std::vector<std::byte>> read(std::uint64_t offset, std::uint64_t count) const {
    std::vector<std::byte> bytes(count);
    for (std::uint64_t done = 0; done < count;) {
      const ssize_t got = ::pread(number, bytes.data() + done, count - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return std::nullopt;
      done += static_cast<std::uint64_t>(got);
    }
    return bytes;
  }

  int number;
};

Result<BundleFile> BundleFile::open(const std::filesystem::path& path) {
  BundleFile bundle;
  bundle.file_ = std::make_shared<const Descriptor>(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (bundle.file_->number < 0) return unusable(path, describe(errno));
  struct stat status{};
  if (::fstat(bundle.file_->number, &status) != 0 || !S_ISREG(status.st_mode)) return unusable(path, "not a file");
  const auto header = bundle.file_->read(0, header_bytes);
  if (!header || std::memcmp(header->data(), magic.data(), magic.size()) != 0) {
    return unusable(path, "does not start as a bundle does");
  }
  const std::uint64_t version = get_number(&(*header)[version_offset]);
  if (version != format_version) {
    return unusable(path,
                    "format version " + std::to_string(version) + " instead of " + std::to_string(format_version));
  }
  const std::uint64_t count = get_number(&(*header)[count_offset]);
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  const auto index = count <= most_items ? bundle.file_->read(header_bytes, count * item_bytes) : std::nullopt;
  if (!index) return unusable(path, "shorter than its index");
  KernelKey stored;
  std::memcpy(stored.bytes.data(), &(*header)[checksum_offset], stored.bytes.size());
  if (checksum(*header, *index) != stored) return unusable(path, "its index does not match its checksum");
  for (std::uint64_t i = 0; i < count; ++i) {
    const Item item = get_item(&(*index)[i * item_bytes]);
    if (item.bytes > largest_entry_bytes || item.offset > file_bytes || item.bytes > file_bytes - item.offset) {
      return unusable(path, "shorter than its index says");
    }
    bundle.items_.push_back(item);
  }
  if (!std::ranges::is_sorted(bundle.items_, {}, &Item::key)) return unusable(path, "its index is not sorted");
  return bundle;
}

const BundleFile::Item* BundleFile::find(const KernelKey& key) const {
  const auto found = std::ranges::lower_bound(items_, key, {}, &Item::key);
  return found != items_.end() && found->key == key ? &*found : nullptr;
}

const BundleFile::Item* BundleFile::find_alias(const KernelKey& alias) const {
  const auto found = std::ranges::find(items_, alias, &Item::alias);
  return found != items_.end() ? &*found : nullptr;
}

std::optional<Entry> BundleFile::read(const Item& item, std::string* why) const {
  const auto bytes = file_->read(item.offset, item.bytes);
  if (!bytes) {
    if (why != nullptr) *why = "cannot be read";
    return std::nullopt;
  }
  return decode(item.key, *bytes, why);
}

}  // namespace flashspan::cache
