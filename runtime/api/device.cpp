// device.cpp -- which devices there are, and buffers on them.
#include "flashspan/device.hpp"

#include <charconv>
#include <string>
#include <utility>

#include "runtime/api/backends.hpp"
#include "runtime/api/device_memory.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/cuda/cuda_memory.hpp"

namespace flashspan {

namespace {

using attention::bad_argument;

std::vector<Device> usable_cuda_devices() {
  const auto driver = cuda::system_driver();
  if (!driver) return {};
  auto devices = cuda::cuda_devices(**driver);
  return devices ? std::move(*devices) : std::vector<Device>{};
}

Result<Device> first_cuda_device() {
  const auto driver = cuda::system_driver();
  if (!driver) return driver.error();
  const auto devices = cuda::cuda_devices(**driver);
  if (!devices) return devices.error();
  if (devices->empty()) {
    return Error{ErrorCode::no_device, "device", "cuda", "a CUDA device of compute capability 8.0 or later", ""};
  }
  return devices->front();
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

Result<Device> numbered_cuda_device(std::string_view text, std::string_view number) {
  int index = -1;
  const auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), index);
  if (status != std::errc{} || end != number.data() + number.size() || index < 0) {
    return bad_argument("device", quoted(text), "auto, cpu, cuda or cuda:N");
  }
  std::string known;
  for (const Device& device : usable_cuda_devices()) {
    if (device.index == index) return device;
    known += (known.empty() ? "" : ", ") + to_string(device);
  }
  if (known.empty()) {
    const auto first = first_cuda_device();  // says why there is none
    if (!first) return first.error();
  }
  return Error{ErrorCode::no_device, "device", std::string(text), known, ""};
}

Result<void> check_within(std::int64_t bytes, std::int64_t size) {
  if (bytes >= 0 && bytes <= size) return {};
  return bad_argument("bytes", std::to_string(bytes), "0 to " + std::to_string(size) + ", the buffer's size");
}

}  // namespace

std::vector<Device> available_devices() {
  std::vector<Device> devices;
  if (api::open_cpu_backend(api::settings())) devices.push_back(Device{});
  const auto cuda_devices = usable_cuda_devices();
  devices.insert(devices.end(), cuda_devices.begin(), cuda_devices.end());
  return devices;
}

Result<Device> device_from_string(std::string_view text) {
  if (text == "cpu") return Device{};
  if (text == "cuda") return first_cuda_device();
  constexpr std::string_view numbered = "cuda:";
  if (text.starts_with(numbered)) return numbered_cuda_device(text, text.substr(numbered.size()));
  if (text != "auto") return bad_argument("device", quoted(text), "auto, cpu, cuda or cuda:N");
  const auto devices = usable_cuda_devices();
  return devices.empty() ? Device{} : devices.front();
}

Result<Buffer> Buffer::allocate(Device device, std::int64_t bytes) {
  auto memory = api::allocate(device, bytes);
  if (!memory) return memory.error();
  Buffer buffer;
  buffer.memory_ = std::move(*memory);
  buffer.bytes_ = bytes;
  buffer.device_ = device;
  return buffer;
}

Result<void> Buffer::copy_from_host(const void* host, std::int64_t bytes) {
  if (auto within = check_within(bytes, bytes_); !within) return within;
  return api::copy_from_host(device_, memory_.get(), host, bytes);
}

Result<void> Buffer::copy_to_host(void* host, std::int64_t bytes) const {
  if (auto within = check_within(bytes, bytes_); !within) return within;
  return api::copy_to_host(device_, host, memory_.get(), bytes);
}

Result<void> synchronize(Device device, Stream stream) {
  if (device.kind == DeviceKind::cpu) return {};
  const auto opened = api::cuda_device(device.index);
  if (!opened) return opened.error();
  return cuda::synchronize(**opened, stream);
}

}  // namespace flashspan
