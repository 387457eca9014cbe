// matrix.cuh -- wrappers of the matrix instructions for sm_80 and later: ldmatrix and mma.sync m16n8k16.
// Fragment layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
#pragma once

namespace flashspan_device {

using u32 = unsigned int;

/// Address of a shared-memory object in the shared state space.
__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

/// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
/// PTX ISA: ldmatrix.
__device__ __forceinline__ void load_matrices(u32 (&result)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(result[0]), "=r"(result[1]), "=r"(result[2]), "=r"(result[3])
               : "r"(address)
               : "memory");
}

/// The same, each matrix transposed on the way.
__device__ __forceinline__ void load_matrices_transposed(u32 (&result)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(result[0]), "=r"(result[1]), "=r"(result[2]), "=r"(result[3])
               : "r"(address)
               : "memory");
}

/// accumulator[16 x 8] += a[16 x 16] * b[16 x 8], fp32 accumulation.
template <bool is_bf16>
__device__ __forceinline__ void multiply_add(float (&accumulator)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (is_bf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(accumulator[0]), "+f"(accumulator[1]), "+f"(accumulator[2]), "+f"(accumulator[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(accumulator[0]), "+f"(accumulator[1]), "+f"(accumulator[2]), "+f"(accumulator[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace flashspan_device
