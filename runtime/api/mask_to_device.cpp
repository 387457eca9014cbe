// mask_to_device.cpp -- masks and scores whose tensors are copies on another device.
#include <memory>
#include <utility>

#include "flashspan/mask.hpp"
#include "runtime/api/device_memory.hpp"
#include "runtime/api/states.hpp"

namespace flashspan {

namespace {

/// `state` with copied tensors; memory that only the old tensors needed is not carried along.
template <typename State>
Result<std::shared_ptr<const State>> copied(const State& state, Device device) {
  State copy = state;
  copy.owned.clear();
  for (TensorView& view : copy.bindings.tensors) {
    auto moved = api::copy_tensor(view, device, copy.owned);
    if (!moved) return moved.error();
    view = *moved;
  }
  return std::make_shared<const State>(std::move(copy));
}

}  // namespace

Result<Mask> Mask::to(Device device) const {
  auto state = copied(*state_, device);
  if (!state) return state.error();
  return Mask(std::move(*state));
}

Result<Score> Score::to(Device device) const {
  auto state = copied(*state_, device);
  if (!state) return state.error();
  return Score(std::move(*state));
}

}  // namespace flashspan
