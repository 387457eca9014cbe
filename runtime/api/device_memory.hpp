// device_memory.hpp -- memory on any device: allocate, copy to and from the host, wait.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/tensor.hpp"
#include "flashspan/core/types.hpp"
#include "runtime/cuda/cuda_device.hpp"

namespace flashspan::api {

/// The CUDA device of that ordinal, opened once per process.
[[nodiscard]] Result<const cuda::CudaDevice*> cuda_device(int ordinal);

/// 256-byte aligned, never null. Error: bad_argument for a negative size, device_error, no_device.
[[nodiscard]] Result<std::shared_ptr<void>> allocate(Device device, std::int64_t bytes);
[[nodiscard]] Result<void> copy_from_host(Device device, void* to, const void* host, std::int64_t bytes);
[[nodiscard]] Result<void> copy_to_host(Device device, void* host, const void* from, std::int64_t bytes);

/// A copy of the tensor on `device`: contiguous, but for axes of stride 0, which stay so. The copy's memory joins
/// `owned`.
[[nodiscard]] Result<TensorView> copy_tensor(const TensorView& view, Device device,
                                             std::vector<std::shared_ptr<void>>& owned);

}  // namespace flashspan::api
