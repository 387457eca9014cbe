#include "runtime/attention/plan_reuse.hpp"

#include <bit>
#include <cstddef>
#include <functional>
#include <string>

#include "runtime/attention/tensor_rule.hpp"

namespace flashspan::attention {
namespace {

/// Values inside tensors are not looked at: they may be on a device.
std::uint64_t hash_of(const mask::Bindings& bindings) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3u; };
  for (const mask::ScalarValue& scalar : bindings.scalars) {
    mix(static_cast<std::uint64_t>(scalar.integer));
    mix(std::bit_cast<std::uint32_t>(scalar.real));
  }
  for (const TensorView& tensor : bindings.tensors) {
    mix(reinterpret_cast<std::uintptr_t>(tensor.data));
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(tensor.rank); ++axis) {
      mix(static_cast<std::uint64_t>(tensor.shape[axis]));
      mix(static_cast<std::uint64_t>(tensor.strides[axis]));
    }
  }
  return hash;
}

}  // namespace

TilePlan plan_of(const AttentionCall& call, const AttentionShape& shape, const ReadyKernel& kernel) {
  std::uint64_t data = hash_of(call.mask->bindings);
  // One interpreted kernel is that of every mask: there, the program is data as well.
  if (kernel.spec.lowering == mask::LoweringKind::interpreted) data ^= std::hash<std::string>()(call.mask->signature);
  return TilePlan{true, kernel.key.bytes, shape, call.workspace, data};
}

Result<void> check_plan(const TilePlan& held, const TilePlan& needed) {
  const auto refused = [](const char* got, const char* takes) {
    return bad_argument("plan", got, std::string(takes) + ", or TilePlan{}, to plan anew");
  };
  if (!held.made) return {};
  if (held.workspace != needed.workspace) {
    return refused("a plan that stands in another workspace", "the workspace of the call that planned");
  }
  if (held.shape != needed.shape) {
    return refused("a plan for other sizes", "the batch, heads, lengths and head dims of the call that planned");
  }
  if (held.kernel != needed.kernel) {
    return refused("a plan for another kernel",
                   "the device, direction, dtype, mask, score and alignment of the call that planned");
  }
  if (held.mask_data != needed.mask_data) {
    return refused("a plan for other data of the mask", "the scalars and tensors of the call that planned");
  }
  return {};
}

}  // namespace flashspan::attention
