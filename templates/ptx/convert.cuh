// convert.cuh -- conversions between fp32 and the 16-bit formats, and base-2 exponentials, one instruction each.
#pragma once

namespace flashspan_device {

/// Two values rounded to nearest even, `low` in the lower half. PTX ISA: cvt.
template <bool is_bf16>
__device__ __forceinline__ unsigned int pack_pair(float low, float high) {
  unsigned int packed;
  if constexpr (is_bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

/// Exact value of a 16-bit element given as its bits.
template <bool is_bf16>
__device__ __forceinline__ float widen(unsigned short bits) {
  float value;
  if constexpr (is_bf16) {
    value = __uint_as_float(static_cast<unsigned int>(bits) << 16);
  } else {
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  }
  return value;
}

/// 2^x with a relative error of at most 2^-22; 0 for -inf. PTX ISA: ex2.approx.
__device__ __forceinline__ float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// 1 / x to within one unit of the last place, for every x: `__fdividef` gives 0 where x is 2^126 or more. PTX ISA:
/// rcp.approx.
__device__ __forceinline__ float reciprocal_fast(float x) {
  float result;
  asm("rcp.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// Binary logarithm of a normal number, to about 22 bits. PTX ISA: lg2.approx.
__device__ __forceinline__ float log2_fast(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace flashspan_device
