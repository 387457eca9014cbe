// device.hpp -- devices and plain device memory, for callers that bring none of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"

#pragma GCC visibility push(default)
namespace flashspan {

/// The CPU if its plug-in opens, and every CUDA device of compute capability 8.0 or later.
[[nodiscard]] std::vector<Device> available_devices();
/// "auto" (first CUDA device, else the CPU), "cpu", "cuda", "cuda:1". Error: bad_argument, no_device.
[[nodiscard]] Result<Device> device_from_string(std::string_view text);

/// Owned memory on one device, 256-byte aligned, not initialised.
class Buffer {
 public:
  Buffer() = default;
  static Result<Buffer> allocate(Device device, std::int64_t bytes);
  [[nodiscard]] void* data() const { return memory_.get(); }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] Device device() const { return device_; }
  /// Synchronous copies of `bytes` bytes from / to host memory, starting at the buffer's first byte.
  Result<void> copy_from_host(const void* host, std::int64_t bytes);
  Result<void> copy_to_host(void* host, std::int64_t bytes) const;

 private:
  std::shared_ptr<void> memory_;
  std::int64_t bytes_ = 0;
  Device device_{};
};

/// Waits until the work queued on `stream` of `device` is done; errors of that work are returned.
Result<void> synchronize(Device device, Stream stream = {});

}  // namespace flashspan
#pragma GCC visibility pop
