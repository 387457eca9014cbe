// foreign_kernel.hpp -- ForeignKernel: one kernel of a cubin that another compiler made, loaded and launched with the
// attributes that its compiler wants.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"
#include "runtime/cuda/cuda_device.hpp"

namespace flashspan::cuda {

struct ForeignLaunch {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;  ///< in blocks, those of a cluster counted each
  unsigned threads = 0;                         ///< of a block
  unsigned dynamic_shared_bytes = 0;
  unsigned cluster_x = 1, cluster_y = 1, cluster_z = 1;  ///< blocks of a cluster
  bool cooperative = false;
  bool programmatic_serialization = false;  ///< may start before the kernel ahead of it in the stream has ended (PDL)
};

/// Unloads when destroyed; the owner must outlive the work that it launched.
class ForeignKernel {
 public:
  /// Loads the kernel on the device and allows it its shared memory, so that launches need neither.
  /// Error: device_error; unsupported, if `launch` asks for more shared memory than the device has.
  static Result<std::shared_ptr<ForeignKernel>> load(const CudaDevice& device, std::span<const std::byte> cubin,
                                                     const std::string& name, const ForeignLaunch& launch);
  ~ForeignKernel();
  ForeignKernel(const ForeignKernel&) = delete;
  ForeignKernel& operator=(const ForeignKernel&) = delete;

  /// Queues one launch; `arguments` point to the values of all parameters. Error: device_error.
  [[nodiscard]] Result<void> launch(const ForeignLaunch& launch, Stream stream, std::span<void*> arguments) const;

 private:
  explicit ForeignKernel(const CudaDevice& device) : device_(device) {}
  Result<void> set_attribute(int attribute, int value) const;

  CudaDevice device_;
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
};

}  // namespace flashspan::cuda
