// device_memory.cpp -- host memory by the allocator, device memory by runtime/cuda, and copies of strided tensors.
#include "runtime/api/device_memory.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <string>

#include "runtime/attention/tensor_rule.hpp"
#include "runtime/cuda/cuda_memory.hpp"

namespace flashspan::api {

namespace {

constexpr std::size_t alignment = 256;

Result<std::shared_ptr<void>> allocate_on_host(std::int64_t bytes) {
  const auto wanted = std::max<std::size_t>(static_cast<std::size_t>(bytes), 1);
  if (wanted > std::numeric_limits<std::size_t>::max() / 2) {
    return attention::bad_argument("bytes", std::to_string(bytes), "what the machine's memory holds");
  }
  const std::size_t rounded = (wanted + alignment - 1) / alignment * alignment;
  std::shared_ptr<void> memory(std::aligned_alloc(alignment, rounded), &std::free);
  if (memory == nullptr) {
    return Error{ErrorCode::device_error, "host memory", "no " + std::to_string(bytes) + " bytes", "", ""};
  }
  return memory;
}

/// Elements from the first to one past the last that the view reaches.
std::int64_t span_elements(const TensorView& view) {
  if (view.element_count() == 0) return 0;
  std::int64_t last = 0;
  for (int axis = 0; axis < view.rank; ++axis) {
    const auto index = static_cast<std::size_t>(axis);
    last += (view.shape[index] - 1) * view.strides[index];
  }
  return last + 1;
}

/// Copies the elements of `view` below `axis` from `from` to `to` in row-major order; returns one past the last.
std::byte* gather(const TensorView& view, int axis, const std::byte* from, std::byte* to) {
  const auto bytes = static_cast<std::size_t>(size_in_bytes(view.dtype));
  if (axis == view.rank) {
    std::memcpy(to, from, bytes);
    return to + bytes;
  }
  const auto index = static_cast<std::size_t>(axis);
  for (std::int64_t position = 0; position < view.shape[index]; ++position) {
    to = gather(view, axis + 1, from + position * view.strides[index] * static_cast<std::int64_t>(bytes), to);
  }
  return to;
}

}  // namespace

Result<const cuda::CudaDevice*> cuda_device(int ordinal) {
  static std::mutex mutex;
  static std::map<int, cuda::CudaDevice> opened;  // nodes stay in place
  const std::scoped_lock lock(mutex);
  if (const auto found = opened.find(ordinal); found != opened.end()) return &found->second;
  const auto driver = cuda::system_driver();
  if (!driver) return driver.error();
  const auto device = cuda::CudaDevice::open(**driver, ordinal);
  if (!device) return device.error();
  return &opened.emplace(ordinal, *device).first->second;
}

Result<std::shared_ptr<void>> allocate(Device device, std::int64_t bytes) {
  if (bytes < 0) return attention::bad_argument("bytes", std::to_string(bytes), "0 or more");
  if (device.kind == DeviceKind::cpu) return allocate_on_host(bytes);
  const auto opened = cuda_device(device.index);
  if (!opened) return opened.error();
  return cuda::allocate(**opened, bytes);
}

Result<void> copy_from_host(Device device, void* to, const void* host, std::int64_t bytes) {
  if (bytes == 0) return {};
  if (device.kind == DeviceKind::cpu) {
    std::memcpy(to, host, static_cast<std::size_t>(bytes));
    return {};
  }
  const auto opened = cuda_device(device.index);
  if (!opened) return opened.error();
  return cuda::copy_from_host(**opened, to, host, bytes);
}

Result<void> copy_to_host(Device device, void* host, const void* from, std::int64_t bytes) {
  if (bytes == 0) return {};
  if (device.kind == DeviceKind::cpu) {
    std::memcpy(host, from, static_cast<std::size_t>(bytes));
    return {};
  }
  const auto opened = cuda_device(device.index);
  if (!opened) return opened.error();
  return cuda::copy_to_host(**opened, host, from, bytes);
}

Result<TensorView> copy_tensor(const TensorView& view, Device device, std::vector<std::shared_ptr<void>>& owned) {
  const std::int64_t element_bytes = size_in_bytes(view.dtype);
  TensorView distinct = view;  // every element once
  for (int axis = 0; axis < view.rank; ++axis) {
    const auto index = static_cast<std::size_t>(axis);
    if (view.strides[index] == 0 && view.shape[index] > 0) distinct.shape[index] = 1;
  }
  std::vector<std::byte> span;
  const auto* from = static_cast<const std::byte*>(view.data);
  if (view.device.kind == DeviceKind::cuda) {
    span.resize(static_cast<std::size_t>(span_elements(distinct) * element_bytes));
    if (auto copied = copy_to_host(view.device, span.data(), view.data, static_cast<std::int64_t>(span.size()));
        !copied) {
      return copied.error();
    }
    from = span.data();
  }
  const std::int64_t bytes = distinct.element_count() * element_bytes;
  std::vector<std::byte> packed(static_cast<std::size_t>(bytes));
  if (bytes > 0) gather(distinct, 0, from, packed.data());
  auto memory = allocate(device, bytes);
  if (!memory) return memory.error();
  if (auto copied = copy_from_host(device, memory->get(), packed.data(), bytes); !copied) return copied.error();

  TensorView copy = view;
  copy.data = memory->get();
  copy.device = device;
  std::int64_t stride = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    const auto index = static_cast<std::size_t>(axis);
    copy.strides[index] = distinct.shape[index] == view.shape[index] ? stride : 0;
    stride *= distinct.shape[index];
  }
  owned.push_back(std::move(*memory));
  return copy;
}

}  // namespace flashspan::api
