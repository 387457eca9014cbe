#include "runtime/cuda/foreign_kernel.hpp"

#include <array>

#include "runtime/cuda/cubin.hpp"
#include "runtime/cuda/relaxed_capture.hpp"

namespace flashspan::cuda {
namespace {

/// Blocks that every device with clusters takes in one; more are a kernel's attribute.
constexpr unsigned portable_cluster_blocks = 8;

unsigned cluster_blocks(const ForeignLaunch& launch) { return launch.cluster_x * launch.cluster_y * launch.cluster_z; }

/// The attributes of a launch, in memory that lasts as long as the call.
class LaunchAttributes {
 public:
  explicit LaunchAttributes(const ForeignLaunch& launch) {
    if (launch.programmatic_serialization) add(launch_attribute_programmatic_serialization).value.number = 1;
    if (launch.cooperative) add(launch_attribute_cooperative).value.number = 1;
    if (cluster_blocks(launch) > 1) {
      auto& cluster = add(launch_attribute_cluster_dimension).value.cluster;
      cluster = {launch.cluster_x, launch.cluster_y, launch.cluster_z};
      add(launch_attribute_cluster_scheduling).value.number = cluster_scheduling_spread;
    }
  }
  [[nodiscard]] CUlaunchAttribute* data() { return attributes_.data(); }
  [[nodiscard]] unsigned count() const { return count_; }

 private:
  CUlaunchAttribute& add(int id) {
    CUlaunchAttribute& attribute = attributes_[count_++];
    attribute.id = id;
    return attribute;
  }

  std::array<CUlaunchAttribute, 4> attributes_{};
  unsigned count_ = 0;
};

}  // namespace

Result<void> ForeignKernel::set_attribute(int attribute, int value) const {
  const DriverApi& driver = *device_.driver;
  return check(driver, "cuKernelSetAttribute", driver.kernel_set_attribute(attribute, value, kernel_, device_.device));
}

Result<std::shared_ptr<ForeignKernel>> ForeignKernel::load(const CudaDevice& device, std::span<const std::byte> cubin,
                                                           const std::string& name, const ForeignLaunch& launch) {
  if (const auto damage = cubin_damage(cubin)) {
    return Error{ErrorCode::device_error, "cubin", *damage, "a whole cubin", name};
  }
  const DriverApi& driver = *device.driver;
  int most_shared = 0;
  const CUresult asked =
      driver.device_get_attribute(&most_shared, device_attribute_max_shared_memory_per_block_optin, device.device);
  if (auto done = check(driver, "cuDeviceGetAttribute", asked); !done) return done.error();
  if (launch.dynamic_shared_bytes > static_cast<unsigned>(most_shared)) {
    return Error{ErrorCode::unsupported, name, std::to_string(launch.dynamic_shared_bytes) + " bytes of shared memory",
                 "at most " + std::to_string(most_shared) + " on this device", ""};
  }
  const ContextScope scope(device);
  if (!scope.entered()) return scope.entered().error();
  const RelaxedCapture relaxed(driver);
  std::shared_ptr<ForeignKernel> loaded(new ForeignKernel(device));
  const CUresult code =
      driver.library_load_data(&loaded->library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (code != cuda_success) {
    loaded->library_ = nullptr;
    return driver_error(driver, "cuLibraryLoadData", code);
  }
  const CUresult found = driver.library_get_kernel(&loaded->kernel_, loaded->library_, name.c_str());
  if (auto done = check(driver, "cuLibraryGetKernel", found); !done) return done.error();
  const auto shared = static_cast<int>(launch.dynamic_shared_bytes);
  if (shared > 0) {
    auto set = loaded->set_attribute(function_attribute_max_dynamic_shared_size_bytes, shared);
    if (!set) return set.error();
  }
  if (cluster_blocks(launch) > portable_cluster_blocks) {
    auto set = loaded->set_attribute(function_attribute_non_portable_cluster_size_allowed, 1);
    if (!set) return set.error();
  }
  CUfunction function = nullptr;
  const CUresult forced = driver.kernel_get_function(&function, loaded->kernel_);
  if (auto done = check(driver, "cuKernelGetFunction", forced); !done) return done.error();
  return loaded;
}

ForeignKernel::~ForeignKernel() {
  if (library_ == nullptr) return;
  const RelaxedCapture relaxed(*device_.driver);
  device_.driver->library_unload(library_);  // at process exit the driver may be gone, and the library with it
}

Result<void> ForeignKernel::launch(const ForeignLaunch& launch, Stream stream, std::span<void*> arguments) const {
  const DriverApi& driver = *device_.driver;
  const ContextScope scope(device_);
  if (!scope.entered()) return scope.entered();
  LaunchAttributes attributes(launch);
  CUlaunchConfig config;
  config.grid_x = launch.grid_x;
  config.grid_y = launch.grid_y;
  config.grid_z = launch.grid_z;
  config.block_x = launch.threads;
  config.dynamic_shared_bytes = launch.dynamic_shared_bytes;
  config.stream = static_cast<CUstream>(stream.handle);
  config.attributes = attributes.count() == 0 ? nullptr : attributes.data();
  config.attribute_count = attributes.count();
  return check(driver, "cuLaunchKernelEx",
               driver.launch_kernel_ex(&config, reinterpret_cast<CUfunction>(kernel_), arguments.data(), nullptr));
}

}  // namespace flashspan::cuda
