// validate.hpp -- every check of a call's arguments, before anything is compiled, allocated or launched. One function
// per rule; a message names the argument, what it got and what it takes.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"
#include "runtime/attention/attention_call.hpp"
#include "runtime/backend/backend.hpp"

namespace flashspan::attention {

/// What a tensor is to a call.
enum class Role { read, written };

struct CallTensor {
  std::string_view argument;
  const TensorView* view = nullptr;
  Role role = Role::read;
  bool optional = false;
};

/// The tensors that a call's direction reads and writes, in the order they are checked in.
class CallTensors {
 public:
  explicit CallTensors(const AttentionCall& call);
  [[nodiscard]] std::span<const CallTensor> all() const { return {tensors_.data(), count_}; }

 private:
  void add(const CallTensor& tensor) { tensors_[count_++] = tensor; }
  std::array<CallTensor, 12> tensors_{};
  std::size_t count_ = 0;
};

/// The call's sizes, if every argument but the workspace is one that the device takes.
/// Error: bad_argument, unsupported (a head dim or dtype that the device cannot serve).
[[nodiscard]] Result<AttentionShape> validate(const AttentionCall& call, const backend::DeviceFacts& facts);

/// A dtype and head dims that devices of this kind serve. Error: bad_argument, unsupported.
[[nodiscard]] Result<void> check_dtype_and_head_dims(DType dtype, const AttentionShape& shape, DeviceKind kind);

}  // namespace flashspan::attention
