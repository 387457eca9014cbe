// device_tensor.cpp -- allocation and copies of tensors on a device.
#include "tools/flashspan/device_tensor.hpp"

#include <algorithm>
#include <utility>

namespace flashspan::tool {

Result<DeviceTensor> DeviceTensor::allocate(Device device, DType dtype, std::vector<std::int64_t> shape) {
  // An empty tensor still gets an address: a null one means "not given".
  const std::int64_t bytes = HostArray{dtype, shape, {}}.byte_count();
  auto buffer = Buffer::allocate(device, std::max<std::int64_t>(1, bytes));
  if (!buffer) return buffer.error();
  DeviceTensor tensor;
  tensor.buffer_ = std::move(*buffer);
  tensor.dtype_ = dtype;
  tensor.shape_ = std::move(shape);
  return tensor;
}

Result<DeviceTensor> DeviceTensor::from_host(Device device, const HostArray& array) {
  auto tensor = allocate(device, array.dtype, array.shape);
  if (!tensor) return tensor;
  if (auto copied = tensor->buffer_.copy_from_host(array.bytes.data(), array.byte_count()); !copied) {
    return copied.error();
  }
  return tensor;
}

TensorView DeviceTensor::view() const {
  TensorView view = HostArray{dtype_, shape_, {}}.view();
  view.data = buffer_.data();
  view.device = buffer_.device();
  return view;
}

Result<HostArray> DeviceTensor::to_host() const {
  HostArray array = HostArray::zeros(dtype_, shape_);
  if (auto copied = buffer_.copy_to_host(array.bytes.data(), array.byte_count()); !copied) return copied.error();
  return array;
}

}  // namespace flashspan::tool
