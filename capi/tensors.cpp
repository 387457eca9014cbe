#include "capi/tensors.hpp"

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "capi/handles.hpp"

namespace flashspan::capi {

Result<Device> device_of(const char* argument, DLDevice device) {
  switch (device.device_type) {
    case kDLCPU:
      return Device{DeviceKind::cpu, 0};
    case kDLCUDA:
      return Device{DeviceKind::cuda, device.device_id};
    default:
      return Error{ErrorCode::unsupported, argument, "DLPack device type " + std::to_string(device.device_type),
                   "kDLCPU or kDLCUDA", ""};
  }
}

Result<DType> dtype_of(const char* argument, DLDataType dtype) {
  const auto is = [dtype](int code, int bits) { return dtype.lanes == 1 && dtype.code == code && dtype.bits == bits; };
  if (is(kDLFloat, 32)) return DType::f32;
  if (is(kDLFloat, 16)) return DType::f16;
  if (is(kDLBfloat, 16)) return DType::bf16;
  if (is(kDLInt, 32)) return DType::i32;
  return Error{ErrorCode::unsupported, argument,
               "DLPack dtype of code " + std::to_string(dtype.code) + ", " + std::to_string(dtype.bits) + " bits, " +
                   std::to_string(dtype.lanes) + " lanes",
               "float32, float16, bfloat16 or int32 of one lane", ""};
}

Result<TensorView> view_of(const char* argument, const DLTensor* tensor) {
  TensorView view;
  if (tensor == nullptr) return view;
  if (tensor->ndim < 0 || tensor->ndim > max_tensor_rank) {
    return Error{ErrorCode::unsupported, argument, "a tensor of " + std::to_string(tensor->ndim) + " axes",
                 "at most " + std::to_string(max_tensor_rank), ""};
  }
  if (tensor->ndim > 0 && tensor->shape == nullptr) return null_argument((std::string(argument) + "->shape").c_str());
  const auto dtype = dtype_of(argument, tensor->dtype);
  if (!dtype) return dtype.error();
  const auto device = device_of(argument, tensor->device);
  if (!device) return device.error();
  view.data = tensor->data == nullptr ? nullptr : static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
  view.dtype = *dtype;
  view.device = *device;
  view.rank = tensor->ndim;
  std::int64_t row_major = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    const auto place = static_cast<std::size_t>(axis);
    view.shape[place] = tensor->shape[axis];
    view.strides[place] = tensor->strides == nullptr ? row_major : tensor->strides[axis];
    // Past 64 bits the largest number there is, which no check of the call lets pass.
    if (__builtin_mul_overflow(row_major, tensor->shape[axis], &row_major)) {
      row_major = std::numeric_limits<std::int64_t>::max();
    }
  }
  return view;
}

Result<std::vector<NamedTensor>> named_tensors(const char* argument, const flashspan_named_tensor* given,
                                               std::size_t count) {
  if (given == nullptr && count != 0) return null_argument(argument);
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < count; ++i) {
    if (given[i].name == nullptr || given[i].tensor == nullptr) return null_argument(argument);
    auto view = view_of(given[i].name, given[i].tensor);
    if (!view) return view.error();
    tensors.push_back({given[i].name, *view});
  }
  return tensors;
}

Result<AttentionShape> shape_of(const flashspan_shape* shape) {
  const auto read = read_structure("shape", shape);
  if (!read) return read.error();
  return AttentionShape{read->batch,  read->query_heads, read->kv_heads,  read->q_len,
                        read->kv_len, read->head_dim_qk, read->head_dim_v};
}

}  // namespace flashspan::capi
