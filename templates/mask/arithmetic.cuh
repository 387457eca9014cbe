// arithmetic.cuh -- the operations of the mask language that C++ does not give as they are: total integer division and
// modulo that round down, wrapping arithmetic, lookups that give 0 outside their tensor. See codegen/mask/program.hpp.
#pragma once

#include "attention/parameters.cuh"
#include "ptx/convert.cuh"

namespace flashspan_device {

using int64 = long long;
using uint64 = unsigned long long;

__device__ __forceinline__ int64 wrapping_add(int64 a, int64 b) {
  return static_cast<int64>(static_cast<uint64>(a) + static_cast<uint64>(b));
}
__device__ __forceinline__ int64 wrapping_subtract(int64 a, int64 b) {
  return static_cast<int64>(static_cast<uint64>(a) - static_cast<uint64>(b));
}
__device__ __forceinline__ int64 wrapping_multiply(int64 a, int64 b) {
  return static_cast<int64>(static_cast<uint64>(a) * static_cast<uint64>(b));
}

/// Rounds towards minus infinity; x // 0 == 0; the smallest integer // -1 wraps to itself.
template <typename T>
__device__ __forceinline__ T floor_divide(T a, T b) {
  if (b == 0) return 0;
  if (b == -1) return static_cast<T>(wrapping_subtract(0, a));
  const T quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

/// Has the sign of b; x % 0 == 0.
template <typename T>
__device__ __forceinline__ T floor_modulo(T a, T b) {
  if (b == 0 || b == -1) return 0;
  const T remainder = a % b;
  return (remainder != 0 && (remainder < 0) != (b < 0)) ? remainder + b : remainder;
}

__device__ __forceinline__ float divide_or_zero(float a, float b) { return b == 0.f ? 0.f : __fdiv_rn(a, b); }

template <int rank>
struct Indices {
  int64 at[rank];
};

/// Element offset of the indices, or -1 outside the tensor.
template <int rank>
__device__ __forceinline__ int64 lookup_offset(const LookupTensor& tensor, const Indices<rank>& indices) {
  int64 offset = 0;
  bool inside = true;
#pragma unroll
  for (int axis = 0; axis < rank; ++axis) {
    inside = inside && indices.at[axis] >= 0 && indices.at[axis] < tensor.extent[axis];
    offset += indices.at[axis] * tensor.stride[axis];
  }
  return inside ? offset : -1;
}

enum class Element { i32, f32, f16, bf16 };

template <int rank>
__device__ __forceinline__ int lookup_integer(const LookupTensor& tensor, const Indices<rank>& indices) {
  const int64 offset = lookup_offset<rank>(tensor, indices);
  return offset < 0 ? 0 : static_cast<const int*>(tensor.data)[offset];
}

template <Element element, int rank>
__device__ __forceinline__ float lookup_real(const LookupTensor& tensor, const Indices<rank>& indices) {
  const int64 offset = lookup_offset<rank>(tensor, indices);
  if (offset < 0) return 0.f;
  if constexpr (element == Element::f32) {
    return static_cast<const float*>(tensor.data)[offset];
  } else {
    return widen < element == Element::bf16 > (static_cast<const unsigned short*>(tensor.data)[offset]);
  }
}

}  // namespace flashspan_device
