// tensor_rule.cpp -- compares a tensor with its rule.
#include "runtime/attention/tensor_rule.hpp"

#include <algorithm>

namespace flashspan::attention {

AxisLengths exactly(const std::string& name, std::int64_t length) {
  return {name, {length}, {name + " = " + std::to_string(length)}};
}

AxisLengths one_of(std::vector<std::int64_t> lengths) {
  AxisLengths axis;
  for (std::int64_t length : lengths) axis.texts.push_back(std::to_string(length));
  axis.accepted = std::move(lengths);
  return axis;
}

AxisLengths any_length(const std::string& name) { return {name, {}, {}}; }

AxisLengths mask_batch(const AttentionShape& shape) {
  return {"B", {1, shape.batch}, {"1", "B = " + std::to_string(shape.batch)}};
}

AxisLengths mask_heads(const AttentionShape& shape) {
  return {"H",
          {1, shape.kv_heads, shape.query_heads},
          {"1", "Hkv = " + std::to_string(shape.kv_heads), "Hq = " + std::to_string(shape.query_heads)}};
}

std::string to_string(const TensorRule& rule) {
  std::string text = flashspan::to_string(rule.dtype);
  text += "[";
  for (std::size_t axis = 0; axis < rule.axes.size(); ++axis) {
    if (axis > 0) text += ", ";
    const AxisLengths& lengths = rule.axes[axis];
    if (lengths.accepted.empty()) text += lengths.name;
    for (std::size_t choice = 0; choice < lengths.texts.size(); ++choice) {
      text += (choice > 0 ? " | " : "") + lengths.texts[choice];
    }
  }
  return text + "]";
}

Result<void> check_given(std::string_view argument, const TensorView& view, std::string_view takes) {
  const bool has_elements = view.rank == 0 || view.element_count() != 0;
  if (!view.given() && has_elements) return bad_argument(std::string(argument), "no tensor", std::string(takes));
  return {};
}

Result<void> check_memory(std::string_view argument, const TensorView& view) {
  for (int axis = 0; axis < view.rank; ++axis) {
    const std::int64_t stride = view.strides[static_cast<std::size_t>(axis)];
    if (stride < 0) {
      return bad_argument(std::string(argument),
                          "stride " + std::to_string(stride) + " on axis " + std::to_string(axis),
                          "strides of 0 (broadcast) or more");
    }
  }
  const std::int64_t element_bytes = size_in_bytes(view.dtype);
  if (reinterpret_cast<std::uintptr_t>(view.data) % static_cast<std::uintptr_t>(element_bytes) == 0) return {};
  return bad_argument(std::string(argument), "memory that does not start at a multiple of the element size",
                      "elements of " + std::to_string(element_bytes) + " bytes, naturally aligned");
}

Result<void> check_tensor(const TensorRule& rule, const TensorView& view) {
  if (const auto given = check_given(rule.argument, view, to_string(rule)); !given) return given.error();
  if (view.dtype != rule.dtype || view.rank != static_cast<int>(rule.axes.size())) {
    return bad_argument(rule.argument, flashspan::to_string(view), to_string(rule));
  }
  for (std::size_t axis = 0; axis < rule.axes.size(); ++axis) {
    const auto& accepted = rule.axes[axis].accepted;
    const std::int64_t length = view.shape[axis];
    if (length >= 0 && (accepted.empty() || std::ranges::find(accepted, length) != accepted.end())) continue;
    return bad_argument(
        rule.argument,
        flashspan::to_string(view) + " (axis " + std::to_string(axis) + " is " + std::to_string(length) + ")",
        to_string(rule));
  }
  return check_memory(rule.argument, view);
}

}  // namespace flashspan::attention
