// backends.hpp -- opens back ends: CUDA, which is compiled in, and the CPU, which is a shared object of its own.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/backend/backend.hpp"
#include "runtime/cuda/nvrtc_library.hpp"

namespace flashspan::api {

/// Error: no_device, missing_component.
[[nodiscard]] Result<std::shared_ptr<backend::Backend>> open_backend(Device device, const Settings& settings);

/// A new back end of the CPU. The plug-in stays open for the rest of the process.
/// Error: missing_component with every file tried and the command that installs it.
[[nodiscard]] Result<std::shared_ptr<backend::Backend>> open_cpu_backend(const Settings& settings);

/// Where NVRTC may be beside the usual places.
[[nodiscard]] cuda::NvrtcSearch nvrtc_search(const Settings& settings);

}  // namespace flashspan::api
