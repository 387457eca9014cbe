// cuda_backend.hpp -- the CUDA back ends: one device, or an architecture to compile for without a device.
#pragma once

#include <memory>

#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"
#include "runtime/backend/backend.hpp"
#include "runtime/cuda/cuda_device.hpp"
#include "runtime/cuda/nvrtc_library.hpp"

namespace flashspan::cuda {

/// The back end of an opened device. NVRTC is opened on the first use of the compiler; search.newest_major is set to
/// the driver's. Error: device_error.
[[nodiscard]] Result<std::unique_ptr<backend::Backend>> make_cuda_backend(const CudaDevice& device, NvrtcSearch search);

/// Compiles for `arch` and answers workspace_bytes(); load() and run() return no_device. Opens no driver.
[[nodiscard]] std::unique_ptr<backend::Backend> make_compile_only_backend(Arch arch, NvrtcSearch search);

}  // namespace flashspan::cuda
