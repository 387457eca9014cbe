// tensor.hpp -- TensorView: borrowed strided memory on some device, the only form in which tensors are passed.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "flashspan/core/types.hpp"

#pragma GCC visibility push(default)
namespace flashspan {

inline constexpr int max_tensor_rank = 5;

/// Borrowed memory: pointer, dtype, shape and strides in elements. The memory must outlive every use,
/// on a CUDA stream until the work queued on it has ended. A null `data` means "not given".
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, max_tensor_rank> shape{};
  std::array<std::int64_t, max_tensor_rank> strides{};
  Device device{};

  [[nodiscard]] bool given() const { return data != nullptr; }
  [[nodiscard]] std::int64_t element_count() const;  ///< at most the largest number of 64 bits
  /// Row-major view of `shape` over `data`.
  static TensorView contiguous(void* data, DType dtype, std::initializer_list<std::int64_t> shape, Device device = {});
  /// The same memory with two axes exchanged: turns [B, S, H, D] into the [B, H, S, D] that calls take.
  [[nodiscard]] TensorView with_axes_swapped(int first, int second) const;
};

/// "f16[2, 8, 128, 64]", for messages.
[[nodiscard]] std::string to_string(const TensorView& view);

}  // namespace flashspan
#pragma GCC visibility pop
