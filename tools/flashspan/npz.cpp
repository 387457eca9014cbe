// npz.cpp -- the zip archives that numpy.savez writes and reads (PKWARE APPNOTE 6.3, stored and deflated members).
#include "tools/flashspan/npz.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "tools/flashspan/files.hpp"
#include "tools/flashspan/npy.hpp"

namespace flashspan::tool {
namespace {

constexpr std::uint32_t local_signature = 0x04034b50, central_signature = 0x02014b50, end_signature = 0x06054b50;
constexpr std::uint32_t end64_signature = 0x06064b50, end64_locator_signature = 0x07064b50;
constexpr std::size_t local_size = 30, central_size = 46, end_size = 22, end64_size = 56, end64_locator_size = 20;
constexpr std::uint32_t in_zip64_field = 0xffffffffU;
constexpr std::uint16_t zip64_field = 1, stored = 0, deflated = 8, encrypted_flag = 1;
constexpr std::uint64_t largest_deflate_ratio = 1032;  // zlib's technical details: no stream expands further

/// What the central directory says of one member.
struct Entry {
  std::string name;
  std::uint16_t flags = 0, method = 0;
  std::uint32_t crc = 0;
  std::uint64_t packed = 0, size = 0, offset = 0;
};

/// Little-endian numbers at checked places of an archive.
class ArchiveBytes {
 public:
  explicit ArchiveBytes(const std::vector<std::byte>& bytes) : bytes_(bytes) {}
  [[nodiscard]] std::uint64_t size() const { return bytes_.size(); }
  [[nodiscard]] bool holds(std::uint64_t offset, std::uint64_t count) const {
    return offset <= bytes_.size() && count <= bytes_.size() - offset;
  }
  /// The caller has checked the range.
  template <typename T>
  [[nodiscard]] T number(std::uint64_t offset) const {
    T value{};
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  [[nodiscard]] std::string text(std::uint64_t offset, std::uint64_t count) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + offset, count};
  }

 private:
  const std::vector<std::byte>& bytes_;
};

/// The end record, searched backwards because a comment may follow it.
std::optional<std::uint64_t> find_end(const ArchiveBytes& bytes) {
  constexpr std::uint64_t longest_comment = 65535;
  if (bytes.size() < end_size) return std::nullopt;
  const std::uint64_t last = bytes.size() - end_size;
  for (std::uint64_t back = 0; back <= std::min(last, longest_comment); ++back) {
    if (bytes.number<std::uint32_t>(last - back) == end_signature) return last - back;
  }
  return std::nullopt;
}

/// Replaces the fields that say "see the zip64 extra field"; false if that field is missing or short.
bool apply_zip64(const ArchiveBytes& bytes, std::uint64_t extra, std::uint64_t extra_size, Entry& entry) {
  std::vector<std::uint64_t*> wanted;
  for (std::uint64_t* field : {&entry.size, &entry.packed, &entry.offset}) {
    if (*field == in_zip64_field) wanted.push_back(field);
  }
  if (wanted.empty()) return true;
  const std::uint64_t end = extra + extra_size;
  while (extra + 4 <= end) {
    const auto tag = bytes.number<std::uint16_t>(extra);
    const auto size = bytes.number<std::uint16_t>(extra + 2);
    extra += 4;
    if (size > end - extra) return false;
    if (tag == zip64_field) {
      if (size < wanted.size() * 8) return false;
      for (std::uint64_t* field : wanted) {
        *field = bytes.number<std::uint64_t>(extra);
        extra += 8;
      }
      return true;
    }
    extra += size;
  }
  return false;
}

struct Directory {
  std::uint64_t offset = 0, count = 0;
};

std::optional<Directory> find_directory(const ArchiveBytes& bytes) {
  const auto end = find_end(bytes);
  if (!end) return std::nullopt;
  Directory directory{bytes.number<std::uint32_t>(*end + 16), bytes.number<std::uint16_t>(*end + 10)};
  if (directory.offset != in_zip64_field && directory.count != 0xffffU) return directory;
  if (*end < end64_locator_size) return std::nullopt;
  const std::uint64_t locator = *end - end64_locator_size;
  if (bytes.number<std::uint32_t>(locator) != end64_locator_signature) return std::nullopt;
  const auto end64 = bytes.number<std::uint64_t>(locator + 8);
  if (!bytes.holds(end64, end64_size) || bytes.number<std::uint32_t>(end64) != end64_signature) return std::nullopt;
  return Directory{bytes.number<std::uint64_t>(end64 + 48), bytes.number<std::uint64_t>(end64 + 32)};
}

/// Nothing if the central directory is damaged.
std::optional<std::vector<Entry>> read_entries(const ArchiveBytes& bytes) {
  const auto directory = find_directory(bytes);
  if (!directory) return std::nullopt;
  std::vector<Entry> entries;
  std::uint64_t at = directory->offset;
  for (std::uint64_t index = 0; index < directory->count; ++index) {
    if (!bytes.holds(at, central_size) || bytes.number<std::uint32_t>(at) != central_signature) return std::nullopt;
    const std::uint64_t name_size = bytes.number<std::uint16_t>(at + 28);
    const std::uint64_t extra_size = bytes.number<std::uint16_t>(at + 30);
    const std::uint64_t comment_size = bytes.number<std::uint16_t>(at + 32);
    const std::uint64_t total = central_size + name_size + extra_size + comment_size;
    if (!bytes.holds(at, total)) return std::nullopt;
    Entry entry{bytes.text(at + central_size, name_size), bytes.number<std::uint16_t>(at + 8),
                bytes.number<std::uint16_t>(at + 10),     bytes.number<std::uint32_t>(at + 16),
                bytes.number<std::uint32_t>(at + 20),     bytes.number<std::uint32_t>(at + 24),
                bytes.number<std::uint32_t>(at + 42)};
    if (!apply_zip64(bytes, at + central_size + name_size, extra_size, entry)) return std::nullopt;
    entries.push_back(std::move(entry));
    at += total;
  }
  return entries;
}

/// Where the member's packed bytes start, or nothing.
std::optional<std::uint64_t> packed_offset(const ArchiveBytes& bytes, const Entry& entry) {
  if (!bytes.holds(entry.offset, local_size)) return std::nullopt;
  if (bytes.number<std::uint32_t>(entry.offset) != local_signature) return std::nullopt;
  const std::uint64_t start = entry.offset + local_size + bytes.number<std::uint16_t>(entry.offset + 26) +
                              bytes.number<std::uint16_t>(entry.offset + 28);
  if (!bytes.holds(start, entry.packed)) return std::nullopt;
  return start;
}

/// False if the stream is damaged or does not give exactly `target.size()` bytes.
bool inflate_into(const std::byte* packed, std::uint64_t packed_size, std::vector<std::byte>& target) {
  constexpr std::uint64_t step = std::uint64_t{1} << 30;
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed));
  stream.next_out = reinterpret_cast<Bytef*>(target.data());
  std::uint64_t input_left = packed_size, output_left = target.size();
  int status = Z_OK;
  while (status == Z_OK) {
    if (stream.avail_in == 0) {
      stream.avail_in = static_cast<uInt>(std::min(input_left, step));
      input_left -= stream.avail_in;
    }
    if (stream.avail_out == 0) {
      stream.avail_out = static_cast<uInt>(std::min(output_left, step));
      output_left -= stream.avail_out;
    }
    status = inflate(&stream, Z_NO_FLUSH);
  }
  inflateEnd(&stream);
  return status == Z_STREAM_END && stream.avail_out == 0 && output_left == 0;
}

std::uint32_t crc_of(const std::byte* bytes, std::size_t count, std::uint32_t start = 0) {
  return static_cast<std::uint32_t>(crc32_z(start, reinterpret_cast<const Bytef*>(bytes), count));
}

Error damaged(const std::string& argument, const std::string& file, const std::string& what) {
  return {ErrorCode::bad_argument, argument, what + " in " + file, "a .npz archive written by numpy.savez", ""};
}

/// Numbers and bytes appended to a record of the archive being written.
class Record {
 public:
  template <typename T>
  Record& number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  Record& text(std::string_view value) {
    text_.append(value);
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const { return text_; }

 private:
  std::string text_;
};

constexpr std::uint16_t version_zip64 = 45;
constexpr std::uint16_t date_1980_01_01 = 0x21;  // fixed, so that equal arrays give equal archives

/// Local header of a stored member. Sizes always stand in the zip64 field, as numpy writes them.
std::string local_header(const Entry& entry) {
  Record record;
  record.number(local_signature).number(version_zip64).number(entry.flags).number(stored);
  record.number(std::uint16_t{0}).number(date_1980_01_01).number(entry.crc);
  record.number(in_zip64_field).number(in_zip64_field);
  record.number(static_cast<std::uint16_t>(entry.name.size())).number(std::uint16_t{20}).text(entry.name);
  record.number(zip64_field).number(std::uint16_t{16}).number(entry.size).number(entry.packed);
  return record.bytes();
}

std::string central_header(const Entry& entry) {
  Record record;
  record.number(central_signature).number(version_zip64).number(version_zip64).number(entry.flags).number(stored);
  record.number(std::uint16_t{0}).number(date_1980_01_01).number(entry.crc);
  record.number(in_zip64_field).number(in_zip64_field);
  record.number(static_cast<std::uint16_t>(entry.name.size())).number(std::uint16_t{28});
  record.number(std::uint16_t{0}).number(std::uint16_t{0}).number(std::uint16_t{0}).number(std::uint32_t{0});
  record.number(in_zip64_field).text(entry.name);
  record.number(zip64_field).number(std::uint16_t{24}).number(entry.size).number(entry.packed).number(entry.offset);
  return record.bytes();
}

/// Zip64 end record, its locator and the plain end record.
std::string end_records(std::uint64_t count, std::uint64_t directory, std::uint64_t directory_size) {
  Record record;
  record.number(end64_signature).number(std::uint64_t{end64_size - 12}).number(version_zip64).number(version_zip64);
  record.number(std::uint32_t{0}).number(std::uint32_t{0}).number(count).number(count);
  record.number(directory_size).number(directory);
  record.number(end64_locator_signature).number(std::uint32_t{0}).number(directory + directory_size);
  record.number(std::uint32_t{1});
  record.number(end_signature).number(std::uint16_t{0}).number(std::uint16_t{0});
  record.number(static_cast<std::uint16_t>(count)).number(static_cast<std::uint16_t>(count));
  record.number(in_zip64_field).number(in_zip64_field).number(std::uint16_t{0});
  return record.bytes();
}

}  // namespace

Result<std::vector<std::string>> archive_names(const std::vector<std::byte>& archive, const std::string& argument,
                                               const std::string& file) {
  const auto entries = read_entries(ArchiveBytes(archive));
  if (!entries) return damaged(argument, file, "no whole zip directory");
  std::vector<std::string> names;
  for (const Entry& entry : *entries) names.push_back(entry.name);
  return names;
}

Result<ArchiveMember> archive_member(const std::vector<std::byte>& archive, const std::string& name,
                                     const std::string& argument, const std::string& file) {
  const ArchiveBytes bytes(archive);
  const auto entries = read_entries(bytes);
  if (!entries) return damaged(argument, file, "no whole zip directory");
  const auto entry = std::find_if(entries->begin(), entries->end(), [&](const Entry& e) { return e.name == name; });
  if (entry == entries->end()) {
    std::string names;
    for (const Entry& other : *entries) names += (names.empty() ? "" : ", ") + other.name;
    return Error{ErrorCode::bad_argument, argument, "member " + name + " of " + file, "one of: " + names, ""};
  }
  const auto start = packed_offset(bytes, *entry);
  if (!start) return damaged(argument, file, "member " + name + " outside the file");
  if ((entry->flags & encrypted_flag) != 0) return damaged(argument, file, "encrypted member " + name);
  if (entry->method != stored && entry->method != deflated) {
    return damaged(argument, file, "compression method " + std::to_string(entry->method));
  }
  const bool possible =
      entry->method == stored ? entry->size == entry->packed : entry->size / largest_deflate_ratio <= entry->packed;
  if (!possible) return damaged(argument, file, "impossible size of member " + name);
  ArchiveMember member{name, std::vector<std::byte>(entry->size)};
  const std::byte* packed = archive.data() + *start;
  if (entry->method == stored) {
    std::copy_n(packed, entry->size, member.bytes.begin());
  } else if (!inflate_into(packed, entry->packed, member.bytes)) {
    return damaged(argument, file, "damaged deflate stream of member " + name);
  }
  if (crc_of(member.bytes.data(), member.bytes.size()) != entry->crc) {
    return damaged(argument, file, "CRC mismatch of member " + name);
  }
  return member;
}

Result<HostArray> read_array(const std::string& path, const std::string& argument) {
  constexpr std::string_view archive_suffix = ".npz";
  const std::size_t colon = path.rfind(".npz:");
  const std::string file = colon == std::string::npos ? path : path.substr(0, colon + archive_suffix.size());
  auto bytes = read_file(file, argument);
  if (!bytes) return bytes.error();
  if (!file.ends_with(archive_suffix)) return array_from_npy(std::move(*bytes), argument, file);
  std::string name;
  if (colon != std::string::npos) {
    name = path.substr(file.size() + 1) + ".npy";
  } else {
    const auto names = archive_names(*bytes, argument, file);
    if (!names) return names.error();
    if (names->size() != 1) {
      return Error{ErrorCode::bad_argument, argument, std::to_string(names->size()) + " arrays in " + file,
                   "one array, or " + file + ":NAME", ""};
    }
    name = names->front();
  }
  auto member = archive_member(*bytes, name, argument, file);
  if (!member) return member.error();
  return array_from_npy(std::move(member->bytes), argument, path);
}

Result<void> write_npz(const std::string& path, const std::string& argument, const NamedArrays& arrays) {
  return write_file_atomically(path, argument, [&](const ByteSink& sink) {
    std::string directory;
    std::uint64_t offset = 0;
    for (const auto& [name, array] : arrays) {
      const std::string header = npy_header(array);
      const auto payload = static_cast<std::size_t>(array.byte_count());
      Entry entry{name + ".npy", 0, stored, 0, header.size() + payload, header.size() + payload, offset};
      entry.crc = crc_of(reinterpret_cast<const std::byte*>(header.data()), header.size());
      entry.crc = crc_of(array.bytes.data(), payload, entry.crc);
      const std::string local = local_header(entry);
      sink(local.data(), local.size());
      sink(header.data(), header.size());
      sink(array.bytes.data(), payload);
      offset += local.size() + entry.size;
      directory += central_header(entry);
    }
    const std::string end = end_records(arrays.size(), offset, directory.size());
    sink(directory.data(), directory.size());
    sink(end.data(), end.size());
  });
}

}  // namespace flashspan::tool
