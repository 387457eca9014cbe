// cuda_device.hpp -- CUDA devices: which there are, what they can do, their primary context, and making that context
// current for the length of a scope.
#pragma once

#include <optional>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"
#include "runtime/backend/backend.hpp"
#include "runtime/cuda/driver_api.hpp"

namespace flashspan::cuda {

/// Compute capability, e.g. 9.0.
struct Capability {
  int major = 0;
  int minor = 0;
  friend bool operator==(const Capability&, const Capability&) = default;
};

/// The architecture to compile for: the newest we know that runs on the device (machine code of x.y runs on x.z with
/// z >= y). Nothing for devices before 8.0 and for majors that we do not know.
[[nodiscard]] std::optional<Arch> arch_for(Capability capability);

/// Devices that arch_for() has an architecture for, by driver ordinal.
[[nodiscard]] Result<std::vector<Device>> cuda_devices(const DriverApi& driver);

/// A device with its primary context, which is shared with every other user of the device in the process (PyTorch,
/// the CUDA runtime). The context is retained for the rest of the process: releasing it would be work at exit, when
/// the driver may be gone, and would save nothing.
struct CudaDevice {
  const DriverApi* driver = nullptr;
  int ordinal = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;

  /// Error: no_device for an ordinal that does not exist, unsupported for one that arch_for() refuses, device_error.
  static Result<CudaDevice> open(const DriverApi& driver, int ordinal);
  /// Error: device_error.
  [[nodiscard]] Result<backend::DeviceFacts> facts() const;
};

/// Makes the device's primary context current on this thread and, at the end of the scope, whatever was current
/// before. Does neither if it is current already, and nothing at the end if the push failed.
class ContextScope {
 public:
  explicit ContextScope(const CudaDevice& device);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  /// Whether the context is current.
  [[nodiscard]] const Result<void>& entered() const { return entered_; }

 private:
  const DriverApi& driver_;
  bool pushed_ = false;
  Result<void> entered_;
};

}  // namespace flashspan::cuda
