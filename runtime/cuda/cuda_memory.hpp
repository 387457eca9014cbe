// cuda_memory.hpp -- device memory in a device's primary context: allocate, copy, wait.
#pragma once

#include <cstdint>
#include <memory>

#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"
#include "runtime/cuda/cuda_device.hpp"

namespace flashspan::cuda {

/// `bytes` bytes, 256-byte aligned, not initialised; never null, for 0 bytes too. Freed with the last owner, which
/// must outlive the work that uses the memory. Error: bad_argument for a negative size, device_error when out of
/// memory.
[[nodiscard]] Result<std::shared_ptr<void>> allocate(const CudaDevice& device, std::int64_t bytes);

/// Synchronous: when it returns, work on any stream sees the bytes. Error: device_error.
[[nodiscard]] Result<void> copy_from_host(const CudaDevice& device, void* to, const void* from, std::int64_t bytes);
/// Synchronous; does not wait for non-blocking streams (see synchronize()). Error: device_error.
[[nodiscard]] Result<void> copy_to_host(const CudaDevice& device, void* to, const void* from, std::int64_t bytes);
/// Waits for the work queued on the stream. Error: device_error, also of that work.
[[nodiscard]] Result<void> synchronize(const CudaDevice& device, Stream stream);

}  // namespace flashspan::cuda
