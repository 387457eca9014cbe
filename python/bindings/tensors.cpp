#include "python/bindings/tensors.hpp"

#include <algorithm>
#include <cstddef>

#include "python/bindings/errors.hpp"

namespace flashspan::python {

void* pointer_of(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): Python has addresses as integers
}

void* address_of(std::uintptr_t address) {
  alignas(256) static std::byte nothing;
  return address != 0 ? pointer_of(address) : &nothing;
}

AttentionShape shape_of(const ShapeTuple& shape) {
  return std::apply([](auto... sizes) { return AttentionShape{sizes...}; }, shape);
}

Device device_of(int cuda_device) {
  if (cuda_device < 0) return {};
  return {DeviceKind::cuda, cuda_device};
}

DType dtype_of(const std::string& name) {
  const auto dtype = dtype_from_string(name);
  if (!dtype) throw Failure({ErrorCode::bad_argument, "dtype", name, "f32, f16, bf16 or i32", ""});
  return *dtype;
}

TensorView view_of(const TensorTuple& tensor, const char* argument) {
  const auto& [address, dtype, shape, strides, cuda_device] = tensor;
  if (shape.size() > max_tensor_rank || strides.size() != shape.size()) {
    throw Failure({ErrorCode::bad_argument, argument, "rank " + std::to_string(shape.size()),
                   "rank 1 to " + std::to_string(max_tensor_rank), ""});
  }
  TensorView view;
  view.data = address_of(address);
  view.dtype = dtype_of(dtype);
  view.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  std::copy(strides.begin(), strides.end(), view.strides.begin());
  view.device = device_of(cuda_device);
  return view;
}

TensorView view_of(const std::optional<TensorTuple>& tensor, const char* argument) {
  return tensor ? view_of(*tensor, argument) : TensorView{};
}

}  // namespace flashspan::python
