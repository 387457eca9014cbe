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
#include <cstring>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "cache/little_endian.hpp"
#include "cache/whole_file.hpp"

namespace flashspan::cache {
namespace {

constexpr std::string_view bundle_magic = "flashbdl";
constexpr std::uint64_t format_version = 1;

// Offsets in the header; numbers are little endian.
constexpr std::size_t bundle_version_offset = 8;  // 8 bytes
constexpr std::size_t count_offset = 16;          // 8 bytes, then 8 zero bytes
constexpr std::size_t bundle_checksum_offset = 32;
constexpr std::size_t bundle_header_bytes = 48;
// Offsets in an item, which starts with its key.
constexpr std::size_t alias_offset = 16;
constexpr std::size_t place_offset = 32;
constexpr std::size_t length_offset = 40;
constexpr std::size_t item_bytes = 48;
constexpr std::uint64_t most_items = std::uint64_t{1} << 20;

Error unusable(const std::filesystem::path& path, const std::string& got) {
  return Error{ErrorCode::io_error, "bundle", path.string() + ": " + got, "a whole bundle of this format", ""};
}

/// Of the header before its checksum, and of the index.
KernelKey checksum(std::span<const std::byte> header, std::span<const std::byte> index) {
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const std::array<std::string_view, 2> parts{text(header.first(bundle_checksum_offset)), text(index)};
  return KernelKey::of(parts);
}

void put_item(std::span<std::byte> to, const BundleFile::Item& item) {
  std::memcpy(to.data(), item.key.bytes.data(), item.key.bytes.size());
  std::memcpy(&to[alias_offset], item.alias.bytes.data(), item.alias.bytes.size());
  put_number(to.subspan(place_offset, number_bytes), item.offset);
  put_number(to.subspan(length_offset, number_bytes), item.bytes);
}

BundleFile::Item get_item(std::span<const std::byte> from) {
  BundleFile::Item item;
  std::memcpy(item.key.bytes.data(), from.data(), item.key.bytes.size());
  std::memcpy(item.alias.bytes.data(), &from[alias_offset], item.alias.bytes.size());
  item.offset = get_number(from.subspan(place_offset, number_bytes));
  item.bytes = get_number(from.subspan(length_offset, number_bytes));
  return item;
}

std::vector<std::byte> encode_bundle(const std::map<KernelKey, BundledEntry>& entries) {
  std::vector<std::byte> bytes(bundle_header_bytes + entries.size() * item_bytes);
  std::size_t item = bundle_header_bytes;
  for (const auto& [key, bundled] : entries) {
    const std::vector<std::byte> file = encode(key, bundled.entry);
    put_item(std::span(bytes).subspan(item, item_bytes), {key, bundled.alias, bytes.size(), file.size()});
    item += item_bytes;
    bytes.insert(bytes.end(), file.begin(), file.end());
  }
  std::memcpy(bytes.data(), bundle_magic.data(), bundle_magic.size());
  put_number(std::span(bytes).subspan(bundle_version_offset, number_bytes), format_version);
  put_number(std::span(bytes).subspan(count_offset, number_bytes), entries.size());
  const auto index = std::span(bytes).subspan(bundle_header_bytes, entries.size() * item_bytes);
  const KernelKey sum = checksum(bytes, index);
  std::memcpy(&bytes[bundle_checksum_offset], sum.bytes.data(), sum.bytes.size());
  return bytes;
}

}  // namespace

Result<void> write_bundle(const std::filesystem::path& path, std::vector<BundledEntry> entries) {
  std::map<KernelKey, BundledEntry> by_key;  // the first of each
  for (BundledEntry& entry : entries) by_key.try_emplace(entry.key, std::move(entry));
  if (const int error = publish_file(path, encode_bundle(by_key), Permissions::of_caller); error != 0) {
    return Error{ErrorCode::io_error, "bundle", path.string() + ": " + error_text(error),
                 "a file in a folder that can be written to", ""};
  }
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
  if (bundle.file_->number < 0) return unusable(path, error_text(errno));
  struct stat status{};
  if (::fstat(bundle.file_->number, &status) != 0 || !S_ISREG(status.st_mode)) return unusable(path, "not a file");
  const auto header = bundle.file_->read(0, bundle_header_bytes);
  if (!header || std::memcmp(header->data(), bundle_magic.data(), bundle_magic.size()) != 0) {
    return unusable(path, "does not start as a bundle does");
  }
  const std::uint64_t version = get_number(std::span(*header).subspan(bundle_version_offset, number_bytes));
  if (version != format_version) {
    return unusable(path,
                    "format version " + std::to_string(version) + " instead of " + std::to_string(format_version));
  }
  const std::uint64_t count = get_number(std::span(*header).subspan(count_offset, number_bytes));
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  const auto index = count <= most_items ? bundle.file_->read(bundle_header_bytes, count * item_bytes) : std::nullopt;
  if (!index) return unusable(path, "shorter than its index");
  KernelKey stored;
  std::memcpy(stored.bytes.data(), &(*header)[bundle_checksum_offset], stored.bytes.size());
  if (checksum(*header, *index) != stored) return unusable(path, "its index does not match its checksum");
  for (std::uint64_t i = 0; i < count; ++i) {
    const Item item = get_item(std::span(*index).subspan(i * item_bytes, item_bytes));
    if (item.bytes > std::uint64_t{largest_entry_bytes} || item.offset > file_bytes ||
        item.bytes > file_bytes - item.offset) {
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

std::vector<const BundleFile::Item*> BundleFile::find_alias(const KernelKey& alias) const {
  std::vector<const Item*> found;
  for (const Item& item : items_) {
    if (item.alias == alias) found.push_back(&item);
  }
  return found;
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
