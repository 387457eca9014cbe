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

/// Files that may be the CPU plug-in, in the order they are tried: FLASHSPAN_CPU_PLUGIN alone if it is set; else beside
/// this library or executable, in the lib folder next to it, along the loader's path, where it was to be installed, and
/// where it was built.
[[nodiscard]] std::vector<std::filesystem::path> cpu_plugin_candidates(const Settings& settings);

/// A new back end of the CPU. The plug-in stays open for the rest of the process.
/// Error: missing_component with every file tried and the command that installs it.
[[nodiscard]] Result<std::shared_ptr<backend::Backend>> open_cpu_backend(const Settings& settings);

/// Where NVRTC may be beside the usual places.
[[nodiscard]] cuda::NvrtcSearch nvrtc_search(const Settings& settings);

}  // namespace flashspan::api
