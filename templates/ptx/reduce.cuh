// reduce.cuh -- wrappers of wide additions to global memory and of matrix stores to shared memory (sm_90 and later).
#pragma once

#include "ptx/matrix.cuh"

namespace flashspan_device {

struct alignas(8) TwoFloats {
  float of[2];
};
struct alignas(16) FourFloats {
  float of[4];
};

/// Adds to four neighbours, each atomically; `to` is a multiple of 16 bytes. PTX ISA: red, .v4.f32.
__device__ __forceinline__ void add_four(float* to, float a, float b, float c, float d) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

/// Stores four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8. PTX ISA:
/// stmatrix.
__device__ __forceinline__ void store_matrices(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

}  // namespace flashspan_device
