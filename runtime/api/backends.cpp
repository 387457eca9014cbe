// backends.cpp -- which back end serves a device, and how the CUDA one is opened.
#include "runtime/api/backends.hpp"

#include <string>
#include <utility>

#include "runtime/api/device_memory.hpp"
#include "runtime/api/own_folder.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/cuda/cuda_backend.hpp"

namespace flashspan::api {

cuda::NvrtcSearch nvrtc_search(const Settings& settings) {
  cuda::NvrtcSearch search;
  search.cuda_home = settings.cuda_home.value_or("");
  if (settings.virtual_env) search.extra_folders.push_back(*settings.virtual_env);
  // In a Python package the folder above is site-packages, where the wheel of NVRTC is.
  if (const auto folder = own_folder(); !folder.empty()) search.extra_folders.push_back(folder.parent_path());
  if (settings.home) search.extra_folders.push_back(*settings.home + "/.local");
  return search;
}

Result<std::shared_ptr<backend::Backend>> open_backend(Device device, const Settings& settings) {
  if (device.kind == DeviceKind::cpu) {
    if (device.index != 0) {
      return attention::bad_argument("device", "cpu:" + std::to_string(device.index), "cpu, which has index 0 only");
    }
    return open_cpu_backend(settings);
  }
  const auto opened = cuda_device(device.index);
  if (!opened) return opened.error();
  auto made = cuda::make_cuda_backend(**opened, nvrtc_search(settings));
  if (!made) return made.error();
  return std::shared_ptr<backend::Backend>(std::move(*made));
}

}  // namespace flashspan::api
