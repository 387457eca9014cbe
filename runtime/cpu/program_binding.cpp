#include "runtime/cpu/program_binding.hpp"

#include <algorithm>

namespace flashspan::cpu {

ProgramBinding::ProgramBinding(const mask::Bindings* bindings, std::int64_t q_len, std::int64_t kv_len) {
  if (bindings != nullptr) {
    for (const TensorView& view : bindings->tensors) {
      LookupTensor tensor{view.data, {}, {}};
      std::copy(view.shape.begin(), view.shape.end(), tensor.extent);
      std::copy(view.strides.begin(), view.strides.end(), tensor.stride);
      tensors_.push_back(tensor);
    }
    for (const mask::ScalarValue& scalar : bindings->scalars) {
      integers_.push_back(scalar.integer);
      reals_.push_back(scalar.real);
    }
  }
  data_ = {tensors_.data(), integers_.data(), reals_.data(), q_len, kv_len};
}

}  // namespace flashspan::cpu
