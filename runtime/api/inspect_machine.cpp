// inspect_machine.cpp -- what Flashspan finds on this machine, and the command that installs what is missing.
#include <sstream>
#include <string>
#include <utility>

#include "flashspan/inspect.hpp"
#include "runtime/api/backends.hpp"
#include "runtime/api/device_memory.hpp"
#include "runtime/api/network_plugin.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/cuda/nvrtc_library.hpp"

namespace flashspan {

namespace {

/// The lines of a message, with "; " between them.
std::string one_line(const Error& error) {
  std::istringstream lines(error.message());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) text += (text.empty() ? "" : "; ") + line;
  }
  return text;
}

Finding failed(std::string subject, const Error& error, std::string remedy) {
  return {std::move(subject), false, one_line(error), std::move(remedy)};
}

Finding examine_driver() {
  const std::string subject = "driver";
  const auto driver = cuda::system_driver();
  if (!driver)
    return failed(subject, driver.error(), "apt-get install nvidia-driver (for an NVIDIA GPU; else none is needed)");
  int version = 0;
  const auto asked = cuda::check(**driver, "cuDriverGetVersion", (*driver)->driver_get_version(&version));
  if (!asked) return failed(subject, asked.error(), "apt-get install --reinstall nvidia-driver");
  return {subject, true, "libcuda.so.1, CUDA " + cuda::cuda_version_text(version), ""};
}

Finding examine_nvrtc() {
  const auto library = cuda::open_nvrtc(api::nvrtc_search(api::settings()));
  if (!library) return failed("nvrtc", library.error(), "pip install nvidia-cuda-nvrtc");
  return {"nvrtc", true, std::to_string(library->major) + "." + std::to_string(library->minor) + ", " + library->path,
          ""};
}

void examine_gpus(std::vector<Finding>& findings) {
  const auto driver = cuda::system_driver();
  if (!driver) return;
  const auto devices = cuda::cuda_devices(**driver);
  if (!devices || devices->empty()) {
    findings.push_back({"gpu", false,
                        devices ? "no device of compute capability 8.0 or later" : one_line(devices.error()),
                        "nvidia-smi (shows which devices the driver sees)"});
    return;
  }
  for (const Device& device : *devices) {
    const std::string subject = "gpu " + std::to_string(device.index);
    const auto opened = api::cuda_device(device.index);
    const auto facts = opened ? (*opened)->facts() : Result<backend::DeviceFacts>(opened.error());
    if (!facts) {
      findings.push_back(failed(subject, facts.error(), "nvidia-smi (shows who holds the device)"));
      continue;
    }
    findings.push_back({subject, true,
                        facts->name + ", " + kernel::to_string(facts->target) + ", " +
                            std::to_string(facts->processors) + " SMs, " + std::to_string(facts->memory_bytes >> 20) +
                            " MiB" + (facts->detail.empty() ? "" : ", " + facts->detail),
                        ""});
  }
}

void examine_cpu(std::vector<Finding>& findings) {
  const auto backend = api::open_cpu_backend(api::settings());
  if (!backend) {
    const std::string remedy = "apt-get install llvm-19-dev libtbb-dev, and build with FLASHSPAN_BUILD_CPU=ON";
    findings.push_back(failed("cpu", backend.error(), remedy));
    return;
  }
  const backend::DeviceFacts& facts = (*backend)->facts();
  findings.push_back({"cpu", true,
                      facts.name + ", " + std::to_string(facts.processors) + " threads" +
                          (facts.detail.empty() ? "" : ", " + facts.detail),
                      ""});
  const auto compiler = (*backend)->compiler_identity();
  findings.push_back(compiler ? Finding{"llvm", true, *compiler, ""}
                              : failed("llvm", compiler.error(), "apt-get install libllvm19"));
}

Finding examine_network() {
  const auto network = api::open_network(api::settings());
  if (network) return {"network", true, "compile services and shared stores can be used", ""};
  return failed("network", network.error(),
                "apt-get install libcurl4-openssl-dev libmicrohttpd-dev libhiredis-dev libssl-dev, and build with "
                "FLASHSPAN_BUILD_NETWORK=ON (for compile services and shared stores; else none is needed)");
}

Finding examine_cache(const std::optional<std::string>& cache_dir) {
  const std::string remedy = "export FLASHSPAN_CACHE_DIR=<a directory that you can write to>";
  const std::string folder = cache_directory(cache_dir);
  if (folder.empty()) return {"cache", false, "no directory can be used; kernels are kept in memory only", remedy};
  if (api::can_be_written(folder)) return {"cache", true, folder, ""};
  return {"cache", false, folder + " cannot be written to; what it has is used, new kernels are kept in memory only",
          remedy};
}

}  // namespace

std::vector<Finding> examine_machine(const std::optional<std::string>& cache_dir) {
  std::vector<Finding> findings{examine_driver(), examine_nvrtc()};
  examine_gpus(findings);
  examine_cpu(findings);
  findings.push_back(examine_network());
  findings.push_back(examine_cache(cache_dir));
  return findings;
}

}  // namespace flashspan
