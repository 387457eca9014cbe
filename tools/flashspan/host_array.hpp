// host_array.hpp -- HostArray: an owned row-major array in host memory, as files hold it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/tensor.hpp"
#include "flashspan/core/types.hpp"

namespace flashspan::tool {

struct HostArray {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;  ///< row-major, never smaller than one byte so that its address is never null

  /// Zeros.
  static HostArray zeros(DType dtype, std::vector<std::int64_t> shape);
  [[nodiscard]] std::int64_t element_count() const;
  [[nodiscard]] std::int64_t byte_count() const { return element_count() * size_in_bytes(dtype); }
  /// View of the array, which keeps owning the memory.
  [[nodiscard]] TensorView view() const;
  template <typename T>
  [[nodiscard]] T* data() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <typename T>
  [[nodiscard]] const T* data() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

/// "f32[2, 128, 8, 64]", for messages.
[[nodiscard]] std::string to_string(const HostArray& array);

/// IEEE binary16 and bfloat16, to and from binary32; narrowing rounds to nearest even and keeps NaN a NaN.
[[nodiscard]] std::uint16_t half_from_float(float value);
[[nodiscard]] float float_from_half(std::uint16_t bits);
[[nodiscard]] std::uint16_t bfloat_from_float(float value);
[[nodiscard]] float float_from_bfloat(std::uint16_t bits);

/// The array with its elements converted between f32, f16 and bf16. Neither side may be i32.
[[nodiscard]] HostArray converted(HostArray array, DType dtype);

}  // namespace flashspan::tool
