// placed_tensor.cpp -- lays elements out on the host, moves whole buffers to and from the device.
#include "attention/placed_tensor.hpp"

#include <algorithm>

#include "oracle/formats.hpp"

namespace flashspan::tests {
namespace {

using oracle::Index;

constexpr std::byte poison{0xFF};
constexpr Index guard_elements = 128;  // on either side; keeps the first element at a 256-byte boundary
constexpr std::int64_t guard_bytes = 256;

}  // namespace

oracle::Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return oracle::Format::f32;
    case DType::f16:
      return oracle::Format::f16;
    case DType::bf16:
      return oracle::Format::bf16;
    case DType::i32:
      break;
  }
  throw std::runtime_error("i32 is not a format of attention tensors");
}

PlacedTensor::PlacedTensor(const oracle::Tensor& values, DType dtype, Device device, const Arrangement& arrangement,
                           bool statistics)
    : dtype_(dtype) {
  view_.device = device;
  place(true, values, arrangement, statistics);
}

PlacedTensor PlacedTensor::poisoned(const oracle::Tensor& shape, DType dtype, Device device,
                                    const Arrangement& arrangement, bool statistics) {
  PlacedTensor tensor;
  tensor.dtype_ = dtype;
  tensor.view_.device = device;
  tensor.place(false, shape, arrangement, statistics);
  return tensor;
}

void PlacedTensor::place(bool with_values, const oracle::Tensor& values, const Arrangement& arrangement,
                         bool statistics) {
  shape_.batch = values.batch;
  shape_.heads = values.heads;
  shape_.rows = values.rows;
  shape_.columns = values.columns;
  const Index row = values.columns + arrangement.row_gap;
  if (arrangement.sequence_major) {
    strides_ = {values.rows * values.heads * row, row, values.heads * row, 1};
  } else {
    strides_ = {values.heads * values.rows * row, values.rows * row, row, 1};
  }
  first_element_ = guard_elements + arrangement.offset;
  const Index elements = first_element_ + values.batch * values.heads * values.rows * row + guard_elements;
  const auto element_bytes = static_cast<Index>(size_in_bytes(dtype_));
  std::vector<std::byte> host(static_cast<std::size_t>(elements * element_bytes), poison);
  if (with_values) {
    for_each_row(values, [&](Index b, Index h, Index row_number) {
      for (Index d = 0; d < values.columns; ++d) {
        const auto value = static_cast<float>(values.at(b, h, row_number, d));
        oracle::store(format_of(dtype_), value, host.data() + byte_of(b, h, row_number, d));
      }
    });
  }
  buffer_ = expect_value(Buffer::allocate(view_.device, elements * element_bytes));
  expect_value(buffer_.copy_from_host(host.data(), elements * element_bytes));
  view_.data = static_cast<std::byte*>(buffer_.data()) + first_element_ * element_bytes;
  view_.dtype = dtype_;
  view_.rank = statistics ? 3 : 4;
  view_.shape = {values.batch, values.heads, values.rows, statistics ? 0 : values.columns, 0};
  view_.strides = {strides_[0], strides_[1], strides_[2], statistics ? 0 : 1, 0};
}

std::size_t PlacedTensor::byte_of(Index b, Index h, Index s, Index d) const {
  const Index element = first_element_ + b * strides_[0] + h * strides_[1] + s * strides_[2] + d;
  return static_cast<std::size_t>(element * size_in_bytes(dtype_));
}

std::vector<std::byte> PlacedTensor::download() const {
  std::vector<std::byte> host(static_cast<std::size_t>(buffer_.bytes()));
  expect_value(buffer_.copy_to_host(host.data(), buffer_.bytes()));
  return host;
}

oracle::Tensor PlacedTensor::read() const {
  const std::vector<std::byte> host = download();
  oracle::Tensor tensor(shape_.batch, shape_.heads, shape_.rows, shape_.columns);
  for_each_row(tensor, [&](Index b, Index h, Index s) {
    for (Index d = 0; d < shape_.columns; ++d) {
      tensor.at(b, h, s, d) = oracle::load(format_of(dtype_), host.data() + byte_of(b, h, s, d));
    }
  });
  return tensor;
}

bool PlacedTensor::surroundings_untouched() const {
  std::vector<std::byte> host = download();
  const auto element_bytes = static_cast<std::size_t>(size_in_bytes(dtype_));
  for_each_row(shape_, [&](Index b, Index h, Index s) {
    const auto row = host.begin() + static_cast<std::ptrdiff_t>(byte_of(b, h, s, 0));
    std::fill_n(row, static_cast<std::size_t>(shape_.columns) * element_bytes, poison);
  });
  return std::all_of(host.begin(), host.end(), [](std::byte byte) { return byte == poison; });
}

PoisonedWorkspace::PoisonedWorkspace(Device device, std::int64_t bytes)
    : buffer_(expect_value(Buffer::allocate(device, bytes + guard_bytes))), bytes_(bytes) {
  const std::vector<std::byte> host(static_cast<std::size_t>(bytes + guard_bytes), poison);
  expect_value(buffer_.copy_from_host(host.data(), bytes + guard_bytes));
}

bool PoisonedWorkspace::guard_untouched() const {
  std::vector<std::byte> host(static_cast<std::size_t>(bytes_ + guard_bytes));
  expect_value(buffer_.copy_to_host(host.data(), bytes_ + guard_bytes));
  return std::all_of(host.begin() + bytes_, host.end(), [](std::byte byte) { return byte == poison; });
}

}  // namespace flashspan::tests
