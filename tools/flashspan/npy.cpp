// npy.cpp -- NumPy's .npy format: a magic string, a Python dict as text, then the elements.
#include "tools/flashspan/npy.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace flashspan::tool {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t longest_header = 65536;

/// Where the elements start and what they are.
struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::size_t size = 0;  ///< bytes before the first element
};

/// Reads the subset of Python literals that numpy.save writes: a dict of a string, a boolean and a tuple of integers.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : rest_(text) {}

  /// Nothing if the text is anything else.
  std::optional<Header> read() {
    Header header;
    bool has_descr = false, has_order = false, has_shape = false;
    if (!take('{')) return std::nullopt;
    while (!take('}')) {
      const auto key = quoted();
      if (!key || !take(':')) return std::nullopt;
      if (*key == "descr" && !has_descr) {
        has_descr = read_descr(header);
        if (!has_descr) return std::nullopt;
      } else if (*key == "fortran_order" && !has_order) {
        has_order = read_order(header);
        if (!has_order) return std::nullopt;
      } else if (*key == "shape" && !has_shape) {
        has_shape = read_shape(header);
        if (!has_shape) return std::nullopt;
      } else {
        return std::nullopt;
      }
      if (!take(',')) {
        if (!take('}')) return std::nullopt;
        break;
      }
    }
    skip_space();
    if (!rest_.empty() || !has_descr || !has_order || !has_shape) return std::nullopt;
    return header;
  }

 private:
  void skip_space() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n' || rest_.front() == '\t')) {
      rest_.remove_prefix(1);
    }
  }

  bool take(char expected) {
    skip_space();
    if (rest_.empty() || rest_.front() != expected) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool take_word(std::string_view word) {
    skip_space();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  std::optional<std::string> quoted() {
    skip_space();
    if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"')) return std::nullopt;
    const std::size_t end = rest_.find(rest_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string text(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text;
  }

  bool read_descr(Header& header) {
    skip_space();
    if (!rest_.empty() && rest_.front() == '[') {  // a structured dtype: no need to understand it to refuse it
      header.descr = "a structured dtype";
      const std::size_t end = rest_.find(']');
      rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
      return true;
    }
    const auto text = quoted();
    if (!text) return false;
    header.descr = *text;
    return true;
  }

  bool read_order(Header& header) {
    header.fortran_order = take_word("True");
    return header.fortran_order || take_word("False");
  }

  bool read_shape(Header& header) {
    if (!take('(')) return false;
    while (!take(')')) {
      skip_space();
      std::int64_t length = 0;
      const auto [end, status] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), length);
      if (status != std::errc() || length < 0) return false;
      rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
      if (!rest_.empty() && rest_.front() == 'L') rest_.remove_prefix(1);  // Python 2 wrote long integers so
      header.shape.push_back(length);
      if (!take(',')) return take(')');
    }
    return true;
  }

  std::string_view rest_;
};

std::optional<Header> read_header(const std::vector<std::byte>& bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() < 10 || !text.starts_with(magic)) return std::nullopt;
  const auto byte_at = [&](std::size_t index) { return static_cast<std::size_t>(bytes[index]); };
  const std::size_t version = byte_at(6);
  if (version < 1 || version > 3) return std::nullopt;
  const std::size_t prefix = version == 1 ? 10 : 12;
  if (text.size() < prefix) return std::nullopt;
  std::size_t length = byte_at(8) | (byte_at(9) << 8);
  if (version > 1) length |= (byte_at(10) << 16) | (byte_at(11) << 24);
  if (length > longest_header || prefix + length > text.size()) return std::nullopt;
  auto header = HeaderReader(text.substr(prefix, length)).read();
  if (header) header->size = prefix + length;
  return header;
}

/// One NumPy element type that is taken.
struct ElementType {
  std::string_view descr;
  DType dtype;  ///< after reading
  std::int64_t size;
};
constexpr std::array<ElementType, 4> element_types{
    {{"<f4", DType::f32, 4}, {"<f2", DType::f16, 2}, {"<i4", DType::i32, 4}, {"<i8", DType::i32, 8}}};

/// Product of the lengths, or nothing when it passes what a file could hold.
std::optional<std::int64_t> checked_count(const std::vector<std::int64_t>& shape) {
  constexpr std::int64_t largest = std::int64_t{1} << 48;
  std::int64_t count = 1;
  for (const std::int64_t length : shape) {
    if (length > largest || (length != 0 && count > largest / length)) return std::nullopt;
    count *= length;
  }
  return count;
}

/// Row-major bytes from column-major ones.
std::vector<std::byte> row_major(const std::vector<std::byte>& source, const std::vector<std::int64_t>& shape,
                                 std::size_t size) {
  std::vector<std::byte> result(source.size());
  std::vector<std::int64_t> index(shape.size(), 0);
  std::vector<std::size_t> strides(shape.size());
  std::size_t stride = size;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    strides[axis] = stride;
    stride *= static_cast<std::size_t>(shape[axis]);
  }
  for (std::size_t target = 0; target + size <= result.size(); target += size) {
    std::size_t offset = 0;
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      offset += static_cast<std::size_t>(index[axis]) * strides[axis];
    std::memcpy(result.data() + target, source.data() + offset, size);
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
  return result;
}

/// i32 from i64, or the first value that does not fit.
Result<std::vector<std::byte>> narrowed(const std::vector<std::byte>& source, const std::string& argument,
                                        const std::string& file) {
  std::vector<std::byte> result(source.size() / 2);
  for (std::size_t index = 0; index < source.size() / 8; ++index) {
    std::int64_t value = 0;
    std::memcpy(&value, source.data() + index * 8, 8);
    if (value < std::numeric_limits<std::int32_t>::min() || value > std::numeric_limits<std::int32_t>::max()) {
      return Error{ErrorCode::bad_argument, argument,
                   std::to_string(value) + " at flat index " + std::to_string(index) + " of " + file,
                   "integers that fit in 32 bits", ""};
    }
    const auto narrow = static_cast<std::int32_t>(value);
    std::memcpy(result.data() + index * 4, &narrow, 4);
  }
  return result;
}

}  // namespace

Result<HostArray> array_from_npy(std::vector<std::byte> bytes, const std::string& argument, const std::string& file) {
  const auto refuse = [&](const std::string& got, const std::string& takes) {
    return Error{ErrorCode::bad_argument, argument, got + " in " + file, takes, ""};
  };
  const auto header = read_header(bytes);
  if (!header) return refuse("no .npy header", "a file written by numpy.save or numpy.savez");
  const auto type = std::find_if(element_types.begin(), element_types.end(),
                                 [&](const ElementType& candidate) { return candidate.descr == header->descr; });
  if (type == element_types.end()) {
    return refuse("dtype '" + header->descr + "'", "little-endian f4, f2, i4 or i8 (array.astype(numpy.float32))");
  }
  if (header->shape.size() > static_cast<std::size_t>(max_tensor_rank)) {
    return refuse("rank " + std::to_string(header->shape.size()), "rank 0 to " + std::to_string(max_tensor_rank));
  }
  const auto count = checked_count(header->shape);
  const std::size_t available = bytes.size() - header->size;
  if (!count || static_cast<std::size_t>(*count * type->size) != available) {
    return refuse(std::to_string(available) + " bytes of elements",
                  count ? std::to_string(*count * type->size) + " bytes, as its header says" : "a possible shape");
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(header->size));
  if (header->fortran_order) bytes = row_major(bytes, header->shape, static_cast<std::size_t>(type->size));
  if (type->size == 8) {
    auto narrow = narrowed(bytes, argument, file);
    if (!narrow) return narrow.error();
    bytes = std::move(*narrow);
  }
  if (bytes.empty()) bytes.resize(1);
  return HostArray{type->dtype, header->shape, std::move(bytes)};
}

std::string npy_header(const HostArray& array) {
  const auto type = std::find_if(element_types.begin(), element_types.end(),
                                 [&](const ElementType& candidate) { return candidate.dtype == array.dtype; });
  const std::string_view descr = type == element_types.end() ? "<f4" : type->descr;
  std::string text = "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (";
  for (const std::int64_t length : array.shape) text += std::to_string(length) + ",";
  text += "), }";
  const std::size_t unpadded = magic.size() + 4 + text.size() + 1;
  text.append((64 - unpadded % 64) % 64, ' ');
  text += '\n';
  std::string header(magic);
  header += '\x01';
  header += '\x00';
  header += static_cast<char>(text.size() & 0xffU);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace flashspan::tool
