// numpy_files.cpp -- .npy and .npz by their published layouts, in the simplest way that is right.
#include "numpy_files.hpp"

#include <zlib.h>

#include <cstring>
#include <regex>
#include <sstream>
#include <stdexcept>

#include "oracle/formats.hpp"
#include "process.hpp"

namespace cli_test {
namespace {

template <typename T>
void append(std::string& text, T value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T number_at(const std::string& text, std::size_t offset) {
  if (offset + sizeof(T) > text.size()) throw std::runtime_error("archive ends early");
  T value;
  std::memcpy(&value, text.data() + offset, sizeof value);
  return value;
}

std::uint32_t crc_of(const std::string& text) {
  return static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

std::string deflated_text(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

ReadArray array_of(const std::string& npy) {
  if (!npy.starts_with("\x93NUMPY\x01")) throw std::runtime_error("no .npy version 1");
  const std::size_t size = 10 + number_at<std::uint16_t>(npy, 8);
  if (size % 64 != 0) throw std::runtime_error("header is not padded to 64 bytes");
  const std::string header = npy.substr(10, size - 10);
  if (header.find("'<f4'") == std::string::npos || header.find("'fortran_order': False") == std::string::npos) {
    throw std::runtime_error("not a C-ordered f4 array: " + header);
  }
  std::smatch match;
  if (!std::regex_search(header, match, std::regex(R"('shape': \(([^)]*)\))"))) throw std::runtime_error(header);
  ReadArray array;
  std::istringstream lengths(match[1].str());
  std::size_t count = 1;
  for (std::string part; std::getline(lengths, part, ',');) {
    if (part.find_first_of("0123456789") == std::string::npos) continue;
    array.shape.push_back(std::stoll(part));
    count *= static_cast<std::size_t>(array.shape.back());
  }
  if (npy.size() != size + 4 * count) throw std::runtime_error("wrong number of elements");
  for (std::size_t index = 0; index < count; ++index) {
    array.values.push_back(static_cast<double>(number_at<float>(npy, size + 4 * index)));
  }
  return array;
}

}  // namespace

std::string npy_text(const std::string& descr, const Shape& shape, const std::string& elements, bool fortran_order,
                     int version) {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': " + (fortran_order ? "True" : "False") + ", 'shape': (";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    header += std::to_string(shape[axis]) + (axis + 1 < shape.size() ? ", " : shape.size() == 1 ? "," : "");
  }
  header += "), }";
  const std::size_t prefix = version == 1 ? 10 : 12;
  while ((prefix + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version);
  text += '\0';
  if (version == 1) {
    append(text, static_cast<std::uint16_t>(header.size()));
  } else {
    append(text, static_cast<std::uint32_t>(header.size()));
  }
  return text + header + elements;
}

std::string npy_f32(const Shape& shape, const std::vector<double>& values) {
  std::string elements;
  for (const double value : values) append(elements, static_cast<float>(value));
  return npy_text("<f4", shape, elements);
}

std::string npy_f16(const Shape& shape, const std::vector<double>& values) {
  std::string elements;
  for (const double value : values) append(elements, oracle::to_f16(static_cast<float>(value)));
  return npy_text("<f2", shape, elements);
}

std::string npy_i32(const Shape& shape, const std::vector<std::int64_t>& values) {
  std::string elements;
  for (const std::int64_t value : values) append(elements, static_cast<std::int32_t>(value));
  return npy_text("<i4", shape, elements);
}

std::string npy_i64(const Shape& shape, const std::vector<std::int64_t>& values) {
  std::string elements;
  for (const std::int64_t value : values) append(elements, value);
  return npy_text("<i8", shape, elements);
}

std::string npz_text(const std::vector<std::pair<std::string, std::string>>& members, bool deflated) {
  std::string text, directory;
  for (const auto& [name, contents] : members) {
    const std::string packed = deflated ? deflated_text(contents) : contents;
    const std::size_t offset = text.size();
    std::string common;  // the fields that both headers share
    append(common, std::uint16_t{20});
    append(common, std::uint16_t{0});
    append(common, static_cast<std::uint16_t>(deflated ? 8 : 0));
    append(common, std::uint32_t{0});
    append(common, crc_of(contents));
    append(common, static_cast<std::uint32_t>(packed.size()));
    append(common, static_cast<std::uint32_t>(contents.size()));
    append(common, static_cast<std::uint16_t>(name.size()));
    text += "PK\x03\x04" + common;
    append(text, std::uint16_t{0});
    text += name + packed;
    directory += "PK\x01\x02";
    append(directory, std::uint16_t{20});
    directory += common;
    directory.append(12, '\0');
    append(directory, static_cast<std::uint32_t>(offset));
    directory += name;
  }
  const std::size_t offset = text.size();
  text += directory + "PK\x05\x06" + std::string(4, '\0');
  append(text, static_cast<std::uint16_t>(members.size()));
  append(text, static_cast<std::uint16_t>(members.size()));
  append(text, static_cast<std::uint32_t>(directory.size()));
  append(text, static_cast<std::uint32_t>(offset));
  return text + std::string(2, '\0');
}

std::map<std::string, ReadArray> read_npz(const std::string& path) {
  const std::string text = read_text(path);
  std::map<std::string, ReadArray> arrays;
  std::size_t at = 0;
  while (text.compare(at, 4, "PK\x03\x04") == 0) {
    if (number_at<std::uint16_t>(text, at + 8) != 0) throw std::runtime_error("a member is not stored");
    const auto crc = number_at<std::uint32_t>(text, at + 14);
    const auto name_size = number_at<std::uint16_t>(text, at + 26);
    const auto extra_size = number_at<std::uint16_t>(text, at + 28);
    const std::string name = text.substr(at + 30, name_size);
    std::uint64_t size = number_at<std::uint32_t>(text, at + 22);
    if (size == 0xffffffffU) size = number_at<std::uint64_t>(text, at + 30 + name_size + 4);  // zip64 field comes first
    const std::string contents = text.substr(at + 30 + name_size + extra_size, size);
    if (contents.size() != size || crc_of(contents) != crc) throw std::runtime_error("damaged member " + name);
    if (!name.ends_with(".npy")) throw std::runtime_error("member is not .npy: " + name);
    arrays[name.substr(0, name.size() - 4)] = array_of(contents);
    at += 30 + name_size + extra_size + size;
  }
  if (text.compare(at, 4, "PK\x01\x02") != 0) throw std::runtime_error("no directory after the members");
  return arrays;
}

}  // namespace cli_test
