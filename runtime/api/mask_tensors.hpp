// mask_tensors.hpp -- how the builders of masks read their tensors: broadcast axes, and values where they are readable.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "flashspan/core/error.hpp"
#include "flashspan/core/tensor.hpp"
#include "flashspan/core/types.hpp"
#include "runtime/api/bind_program.hpp"

namespace flashspan::api {

/// A builder's tensor, ready to be looked up as `name[b, <head>, ...]`: its batch axis has the call's batch (by stride
/// 0 if it was 1), and its head axis is gone if it was 1.
struct HeadedTensor {
  std::string name;
  TensorView view;
  std::string batch_and_head;  ///< "b", "b, h" or "b, h // mask_group"
};

/// `view` is [B | 1, H | 1, ...], already checked.
[[nodiscard]] HeadedTensor read_headed(const std::string& name, const TensorView& view, const AttentionShape& shape);

/// The data of a builder: its tensors, its scalars, and mask_group = Hq / Hkv if a tensor is looked up by it.
[[nodiscard]] NamedData data_of(const std::vector<HeadedTensor>& tensors, std::vector<NamedScalar> scalars,
                                const AttentionShape& shape);

/// What values an i32 tensor may hold, item by item; an item is what the axes before `item_axis` single out.
struct ValueRule {
  std::string argument;
  std::string takes;
  int item_axis = 1;
  /// What is wrong with the item that starts at `first`, or nothing.
  std::function<std::optional<std::string>(const std::int32_t* first)> complaint;
};

/// Applies the rule to a tensor in host memory. A tensor on a device is not read: its values must be harmless by the
/// meaning of the program. Error: bad_argument with the item's place, what it got, and what it takes.
[[nodiscard]] Result<void> check_values(const ValueRule& rule, const TensorView& view);

/// The pairs along the last axis are half-open ranges: empty, or within [0, length].
[[nodiscard]] ValueRule range_rule(const std::string& argument, const TensorView& view, std::int64_t length);

/// One element of an i32 tensor in host memory.
[[nodiscard]] std::int32_t element(const TensorView& view, std::initializer_list<std::int64_t> place);

[[nodiscard]] inline bool readable(const TensorView& view) { return view.device.kind == DeviceKind::cpu; }

}  // namespace flashspan::api
