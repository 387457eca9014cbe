// tensor_maps.hpp -- the three inputs as the copy engine of sm_90 takes them.
#pragma once

#include "codegen/kernel/kernel_spec.hpp"
#include "flashspan/core/error.hpp"
#include "runtime/backend/backend.hpp"
#include "runtime/cuda/driver_api.hpp"
#include "templates/attention/parameters.cuh"

namespace flashspan::cuda {

/// Fills in maps of query, key and value for a kernel of KernelFamily::hopper: boxes of 64 columns by a tile's rows in
/// the 128-byte swizzle; elements outside a tensor read as zero. Nothing is copied or kept: the maps hold the
/// addresses. Error: device_error, if the driver refuses a tensor.
[[nodiscard]] Result<void> describe_inputs(const DriverApi& driver, const kernel::KernelSpec& spec,
                                           const backend::LaunchArgs& args, flashspan_device::TensorMaps& maps);

}  // namespace flashspan::cuda
