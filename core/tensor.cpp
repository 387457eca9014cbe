#include "flashspan/core/tensor.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace flashspan {

namespace {

/// Of counts; past 64 bits, the largest number there is, so that a check against any limit sees it.
std::int64_t product(std::int64_t first, std::int64_t second) {
  std::int64_t result = 0;
  return __builtin_mul_overflow(first, second, &result) ? std::numeric_limits<std::int64_t>::max() : result;
}

}  // namespace

std::int64_t TensorView::element_count() const {
  std::int64_t count = 1;
  for (int axis = 0; axis < rank; ++axis) count = product(count, shape[static_cast<std::size_t>(axis)]);
  return count;
}

TensorView TensorView::contiguous(void* data, DType dtype, std::initializer_list<std::int64_t> shape, Device device) {
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  view.device = device;
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  std::int64_t stride = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    view.strides[static_cast<std::size_t>(axis)] = stride;
    stride = product(stride, view.shape[static_cast<std::size_t>(axis)]);
  }
  return view;
}

TensorView TensorView::with_axes_swapped(int first, int second) const {
  TensorView view = *this;
  std::swap(view.shape[static_cast<std::size_t>(first)], view.shape[static_cast<std::size_t>(second)]);
  std::swap(view.strides[static_cast<std::size_t>(first)], view.strides[static_cast<std::size_t>(second)]);
  return view;
}

std::string to_string(const TensorView& view) {
  std::string text = to_string(view.dtype);
  text += "[";
  for (int axis = 0; axis < view.rank; ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(view.shape[static_cast<std::size_t>(axis)]);
  }
  return text + "]";
}

}  // namespace flashspan
