#include "runtime/cuda/tensor_maps.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "codegen/kernel/tile_config.hpp"

namespace flashspan::cuda {
namespace {

using flashspan_device::TensorMap;
using flashspan_device::TensorMaps;

constexpr unsigned box_columns = 64;  // 128 bytes, one row of a panel (templates/ptx/warpgroup.cuh)
constexpr unsigned long long stride_unit = 16;
constexpr std::size_t outer_axes = 3;  // batch, head, row; the map counts from the innermost axis

/// Bytes from one index of an outer axis to the next. The stride of an axis of extent 1 is never used, and may be
/// anything a caller's library left there; the driver wants a multiple of 16 all the same.
unsigned long long stride_bytes(const TensorView& view, std::size_t axis) {
  if (view.shape[axis] <= 1) return stride_unit;
  return static_cast<unsigned long long>(view.strides[axis]) *
         static_cast<unsigned long long>(size_in_bytes(view.dtype));
}

CUresult encode(const DriverApi& driver, TensorMap& map, const TensorView& view, void* fallback, unsigned rows) {
  std::array<unsigned long long, outer_axes + 1> extents{};
  std::array<unsigned long long, outer_axes> strides{};
  extents[0] = static_cast<unsigned long long>(view.shape[outer_axes]);
  for (std::size_t i = 0; i < outer_axes; ++i) {
    const std::size_t axis = outer_axes - 1 - i;
    // A tensor without elements is never read, but must be described.
    extents[i + 1] = static_cast<unsigned long long>(std::max<std::int64_t>(view.shape[axis], 1));
    strides[i] = stride_bytes(view, axis);
  }
  const std::array<unsigned, outer_axes + 1> box{box_columns, rows, 1, 1};
  const std::array<unsigned, outer_axes + 1> every{1, 1, 1, 1};
  const int type = view.dtype == DType::bf16 ? tensor_map_bfloat16 : tensor_map_float16;
  return driver.tensor_map_encode_tiled(&map, type, outer_axes + 1, view.data != nullptr ? view.data : fallback,
                                        extents.data(), strides.data(), box.data(), every.data(),
                                        tensor_map_interleave_none, tensor_map_swizzle_128b,
                                        tensor_map_l2_promotion_256b, tensor_map_oob_fill_none);
}

}  // namespace

Result<void> describe_inputs(const DriverApi& driver, const kernel::KernelSpec& spec, const backend::LaunchArgs& args,
                             TensorMaps& maps) {
  struct Input {
    const char* name;
    TensorMap TensorMaps::* map;
    const TensorView& view;
    int rows;
  };
  const kernel::StepSizes step = kernel::step_sizes(spec);
  const std::array<Input, 4> inputs{{{"query", &TensorMaps::query, args.query, step.queries},
                                     {"key", &TensorMaps::key, args.key, step.keys},
                                     {"value", &TensorMaps::value, args.value, step.keys},
                                     {"out_gradient", &TensorMaps::out_gradient, args.out_gradient, step.queries}}};
  const std::size_t given = spec.direction == Direction::backward ? inputs.size() : inputs.size() - 1;
  for (const Input& input : std::span(inputs).first(given)) {
    const CUresult code =
        encode(driver, maps.*input.map, input.view, args.query.data, static_cast<unsigned>(input.rows));
    if (code == cuda_success) continue;
    Error error = driver_error(driver, "cuTensorMapEncodeTiled", code);
    error.detail = input.name;
    return error;
  }
  return {};
}

}  // namespace flashspan::cuda
