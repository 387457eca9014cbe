// device_tensor.hpp -- DeviceTensor: memory on a device with a shape, filled from and copied back to a HostArray.
#pragma once

#include <cstdint>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/tensor.hpp"
#include "flashspan/device.hpp"
#include "tools/flashspan/host_array.hpp"

namespace flashspan::tool {

class DeviceTensor {
 public:
  DeviceTensor() = default;
  /// Not initialised.
  static Result<DeviceTensor> allocate(Device device, DType dtype, std::vector<std::int64_t> shape);
  static Result<DeviceTensor> from_host(Device device, const HostArray& array);
  /// Row-major view; not given if the tensor is default-constructed.
  [[nodiscard]] TensorView view() const;
  [[nodiscard]] Result<HostArray> to_host() const;

 private:
  Buffer buffer_;
  DType dtype_ = DType::f32;
  std::vector<std::int64_t> shape_;
};

}  // namespace flashspan::tool
