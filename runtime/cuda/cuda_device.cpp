#include "runtime/cuda/cuda_device.hpp"

#include <array>
#include <cstddef>
#include <string>

namespace flashspan::cuda {
namespace {

/// Every capability that we compile and test for, ascending.
constexpr std::array<Capability, 6> known_capabilities{{{8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 0}, {12, 0}}};

/// Its own instructions (wgmma, setmaxnreg) are in sm_90a only, which runs nowhere else, and need not.
constexpr Capability hopper{9, 0};

Result<Capability> capability_of(const DriverApi& driver, CUdevice device) {
  Capability capability;
  for (const auto& [attribute, value] : {std::pair{device_attribute_compute_capability_major, &capability.major},
                                         std::pair{device_attribute_compute_capability_minor, &capability.minor}}) {
    const auto got = check(driver, "cuDeviceGetAttribute", driver.device_get_attribute(value, attribute, device));
    if (!got) return got.error();
  }
  return capability;
}

std::string to_text(Capability capability) {
  return std::to_string(capability.major) + "." + std::to_string(capability.minor);
}

Result<int> device_count(const DriverApi& driver) {
  int count = 0;
  const auto counted = check(driver, "cuDeviceGetCount", driver.device_get_count(&count));
  if (!counted) return counted.error();
  return count;
}

}  // namespace

std::optional<Arch> arch_for(Capability capability) {
  std::optional<Arch> arch;
  for (const Capability known : known_capabilities) {
    if (known.major == capability.major && known.minor <= capability.minor) {
      arch = known == hopper ? Arch{90, 'a'} : Arch{known.major * 10 + known.minor, 0};
    }
  }
  return arch;
}

Result<std::vector<Device>> cuda_devices(const DriverApi& driver) {
  const auto count = device_count(driver);
  if (!count) return count.error();
  std::vector<Device> devices;
  for (int ordinal = 0; ordinal < *count; ++ordinal) {
    CUdevice device = 0;
    const auto found = check(driver, "cuDeviceGet", driver.device_get(&device, ordinal));
    if (!found) return found.error();
    const auto capability = capability_of(driver, device);
    if (!capability) return capability.error();
    if (arch_for(*capability)) devices.push_back(Device{DeviceKind::cuda, ordinal});
  }
  return devices;
}

Result<CudaDevice> CudaDevice::open(const DriverApi& driver, int ordinal) {
  const auto count = device_count(driver);
  if (!count) return count.error();
  if (ordinal < 0 || ordinal >= *count) {
    return Error{ErrorCode::no_device, "device", "cuda:" + std::to_string(ordinal),
                 *count == 0 ? "no CUDA device: there is none" : "cuda:0 to cuda:" + std::to_string(*count - 1), ""};
  }
  CudaDevice opened{&driver, ordinal, 0, nullptr};
  if (const auto found = check(driver, "cuDeviceGet", driver.device_get(&opened.device, ordinal)); !found) {
    return found.error();
  }
  const auto capability = capability_of(driver, opened.device);
  if (!capability) return capability.error();
  if (!arch_for(*capability)) {
    return Error{ErrorCode::unsupported, "device",
                 "cuda:" + std::to_string(ordinal) + " of compute capability " + to_text(*capability),
                 "compute capability 8.x, 9.x, 10.x or 12.x", ""};
  }
  const CUresult code = driver.device_primary_ctx_retain(&opened.context, opened.device);
  if (const auto retained = check(driver, "cuDevicePrimaryCtxRetain", code); !retained) return retained.error();
  return opened;
}

Result<backend::DeviceFacts> CudaDevice::facts() const {
  const auto capability = capability_of(*driver, device);
  if (!capability) return capability.error();
  std::array<char, 256> name{};
  std::size_t memory = 0;
  int processors = 0;
  int shared = 0;
  int version = 0;
  const auto attribute = [&](int* value, int which) { return driver->device_get_attribute(value, which, device); };
  for (const auto& [call, code] :
       {std::pair{"cuDeviceGetName", driver->device_get_name(name.data(), static_cast<int>(name.size()), device)},
        std::pair{"cuDeviceTotalMem", driver->device_total_mem(&memory, device)},
        std::pair{"cuDeviceGetAttribute", attribute(&processors, device_attribute_multiprocessor_count)},
        std::pair{"cuDeviceGetAttribute", attribute(&shared, device_attribute_max_shared_memory_per_block_optin)},
        std::pair{"cuDriverGetVersion", driver->driver_get_version(&version)}}) {
    if (code != cuda_success) return driver_error(*driver, call, code);
  }

  backend::DeviceFacts facts;
  facts.device = Device{DeviceKind::cuda, ordinal};
  facts.target = kernel::Target{DeviceKind::cuda, arch_for(*capability).value_or(Arch{})};
  facts.name = name.data();
  facts.driver = cuda_version_text(version);
  facts.detail = "compute capability " + to_text(*capability) + ", driver for CUDA " + cuda_version_text(version) +
                 ", " + std::to_string(shared) + " bytes of shared memory per block";
  facts.memory_bytes = static_cast<std::int64_t>(memory);
  facts.processors = processors;
  return facts;
}

ContextScope::ContextScope(const CudaDevice& device) : driver_(*device.driver) {
  // As a rule it is current: the CUDA runtime and PyTorch work in the primary context too.
  CUcontext current = nullptr;
  if (driver_.ctx_get_current(&current) == cuda_success && current == device.context) return;
  entered_ = check(driver_, "cuCtxPushCurrent", driver_.ctx_push_current(device.context));
  pushed_ = entered_.has_value();
}

ContextScope::~ContextScope() {
  if (!pushed_) return;
  CUcontext popped = nullptr;
  driver_.ctx_pop_current(&popped);
}

}  // namespace flashspan::cuda
