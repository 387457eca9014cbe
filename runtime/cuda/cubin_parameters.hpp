// cubin_parameters.hpp -- what a cubin says of its kernels' parameters and blocks, read without a driver.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace flashspan::cuda {

struct KernelParameter {
  int offset = 0;  ///< in the parameter block
  int bytes = 0;
  friend bool operator==(const KernelParameter&, const KernelParameter&) = default;
};

struct CubinKernel {
  std::vector<KernelParameter> parameters;  ///< in the order of the kernel's declaration
  /// Threads of a block that the kernel insists on (.reqntid); nothing if it takes any.
  std::optional<std::array<int, 3>> required_block;
};

/// From section .nv.info.<kernel> (attributes KPARAM_INFO and REQNTID, as nvdisasm and cuobjdump -elf print them).
/// Nothing if the bytes are no cubin or there is no such kernel.
[[nodiscard]] std::optional<CubinKernel> cubin_kernel(std::span<const std::byte> cubin, std::string_view name);

}  // namespace flashspan::cuda
