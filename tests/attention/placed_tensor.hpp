// placed_tensor.hpp -- a tensor on a device in a chosen memory arrangement, all memory around its elements poisoned.
#pragma once

#include <array>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "flashspan/core/tensor.hpp"
#include "flashspan/device.hpp"
#include "oracle/tensor.hpp"

namespace flashspan::tests {

[[nodiscard]] oracle::Format format_of(DType dtype);

/// How a [B, H, S, D] tensor lies in memory.
struct Arrangement {
  bool sequence_major = false;  ///< [B, S, H, D] instead of [B, H, S, D]
  oracle::Index offset = 0;     ///< elements before the first one, off a 256-byte boundary
  oracle::Index row_gap = 0;    ///< poisoned elements behind every row
};

/// Memory with every byte 0xFF, which is NaN in all formats, but for the elements. Owns the device memory.
class PlacedTensor {
 public:
  PlacedTensor() = default;
  /// Holds `values` (rounded to dtype); without values, elements are poison too. Rank 3 if `statistics`: [B, H, S].
  PlacedTensor(const oracle::Tensor& values, DType dtype, Device device, const Arrangement& arrangement,
               bool statistics = false);
  /// As above, with elements left poisoned.
  static PlacedTensor poisoned(const oracle::Tensor& shape, DType dtype, Device device, const Arrangement& arrangement,
                               bool statistics = false);

  [[nodiscard]] const TensorView& view() const { return view_; }
  /// The elements as they are on the device now.
  [[nodiscard]] oracle::Tensor read() const;
  /// Whether every byte that is not an element is still 0xFF.
  [[nodiscard]] bool surroundings_untouched() const;

 private:
  [[nodiscard]] std::size_t byte_of(oracle::Index b, oracle::Index h, oracle::Index s, oracle::Index d) const;
  [[nodiscard]] std::vector<std::byte> download() const;
  void place(bool with_values, const oracle::Tensor& values, const Arrangement& arrangement, bool statistics);

  oracle::Tensor shape_;  // no values
  DType dtype_ = DType::f32;
  Buffer buffer_;
  TensorView view_;
  oracle::Index first_element_ = 0;
  std::array<oracle::Index, 4> strides_{};
};

/// `bytes` of device memory with every byte 0xFF and 256 more behind them.
class PoisonedWorkspace {
 public:
  PoisonedWorkspace(Device device, std::int64_t bytes);
  [[nodiscard]] void* data() const { return buffer_.data(); }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] bool guard_untouched() const;

 private:
  Buffer buffer_;
  std::int64_t bytes_;
};

/// The value of a result; a failed one ends the test with its message.
template <typename T>
T expect_value(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return *std::move(result);
}
inline void expect_value(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().message());
}

}  // namespace flashspan::tests
