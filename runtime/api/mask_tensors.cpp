// mask_tensors.cpp -- views for broadcasting, and walks over host values.
#include "runtime/api/mask_tensors.hpp"

#include <array>
#include <utility>

#include "runtime/attention/tensor_rule.hpp"

namespace flashspan::api {

namespace {

TensorView with_batch(TensorView view, std::int64_t batch) {
  if (view.shape[0] == 1) {
    view.shape[0] = batch;
    view.strides[0] = 0;
  }
  return view;
}

TensorView without_axis(const TensorView& view, int removed) {
  TensorView result = view;
  result.rank = 0;
  result.shape = {};
  result.strides = {};
  for (int axis = 0; axis < view.rank; ++axis) {
    if (axis == removed) continue;
    const auto to = static_cast<std::size_t>(result.rank++);
    result.shape[to] = view.shape[static_cast<std::size_t>(axis)];
    result.strides[to] = view.strides[static_cast<std::size_t>(axis)];
  }
  return result;
}

std::string place_text(const std::array<std::int64_t, max_tensor_rank>& place, int axes) {
  std::string text;
  for (int axis = 0; axis < axes; ++axis) {
    text += (axis > 0 ? ", " : "") + std::to_string(place[static_cast<std::size_t>(axis)]);
  }
  return "[" + text + "]";
}

constexpr const char* by_group = "b, h // mask_group";

}  // namespace

HeadedTensor read_headed(const std::string& name, const TensorView& view, const AttentionShape& shape) {
  const TensorView batched = with_batch(view, shape.batch);
  const std::int64_t heads = view.shape[1];
  if (heads == 1) return {name, without_axis(batched, 1), "b"};
  return {name, batched, heads == shape.query_heads ? "b, h" : by_group};
}

NamedData data_of(const std::vector<HeadedTensor>& tensors, std::vector<NamedScalar> scalars,
                  const AttentionShape& shape) {
  NamedData data;
  bool grouped = false;
  for (const HeadedTensor& tensor : tensors) {
    data.tensors.push_back({tensor.name, tensor.view});
    grouped = grouped || tensor.batch_and_head == by_group;
  }
  data.scalars = std::move(scalars);
  if (grouped) data.scalars.push_back({"mask_group", shape.query_heads / shape.kv_heads});
  return data;
}

Result<void> check_values(const ValueRule& rule, const TensorView& view) {
  if (!readable(view) || view.element_count() == 0) return {};
  std::array<std::int64_t, max_tensor_rank> place{};
  const auto* data = static_cast<const std::int32_t*>(view.data);
  while (true) {
    std::int64_t offset = 0;
    int axis = 0;
    for (; axis < rule.item_axis; ++axis) {
      const auto index = static_cast<std::size_t>(axis);
      offset += place[index] * view.strides[index];
    }
    if (const auto got = rule.complaint(data + offset)) {
      return attention::bad_argument(rule.argument + place_text(place, rule.item_axis), *got, rule.takes);
    }
    for (--axis; axis >= 0; --axis) {
      const auto index = static_cast<std::size_t>(axis);
      if (++place[index] < view.shape[index]) break;
      place[index] = 0;
    }
    if (axis < 0) return {};
  }
}

ValueRule range_rule(const std::string& argument, const TensorView& view, std::int64_t length) {
  const int last_axis = view.rank - 1;
  const std::int64_t stride = view.strides[static_cast<std::size_t>(last_axis)];
  const std::string takes = "an empty range or one within [0, " + std::to_string(length) + ")";
  return {argument, takes, last_axis, [stride, length](const std::int32_t* first) -> std::optional<std::string> {
            const std::int32_t begin = first[0];
            const std::int32_t end = first[stride];
            if (begin >= end || (begin >= 0 && end <= length)) return std::nullopt;
            return "[" + std::to_string(begin) + ", " + std::to_string(end) + ")";
          }};
}

std::int32_t element(const TensorView& view, std::initializer_list<std::int64_t> place) {
  std::int64_t offset = 0;
  std::size_t axis = 0;
  for (std::int64_t index : place) offset += index * view.strides[axis++];
  return static_cast<const std::int32_t*>(view.data)[offset];
}

}  // namespace flashspan::api
