// warpgroup.cuh -- ordering and operand descriptors of the asynchronous warpgroup matrix products (sm_90a). The
// products themselves are generated for the shapes that a kernel uses: generated/warpgroup_products.cuh.
#pragma once

namespace flashspan_device {

using u64 = unsigned long long;

constexpr int warpgroup_threads = 128;
/// Operand tiles stand in shared memory as panels of 64 columns, 128 bytes a row, in the copy engine's 128-byte
/// swizzle; eight rows are one swizzle atom. Panels start at multiples of 1024 bytes.
constexpr int panel_columns = 64;
constexpr int panel_row_bytes = 128;
constexpr int swizzle_atom_bytes = 1024;

/// An address in shared memory as descriptors hold it.
__device__ __forceinline__ unsigned int operand_place(unsigned int shared) { return (shared & 0x3ffffu) >> 4; }

/// PTX ISA, "Matrix Descriptor Format": start address, offset from one 64-wide panel to the next for operands whose
/// rows run along the product's inner dimension, offset from eight rows to the next eight, 128-byte swizzle.
__device__ __forceinline__ u64 operand_at(unsigned int place, int panel_bytes) {
  return static_cast<u64>(place) | static_cast<u64>(panel_bytes >> 4) << 16 |
         static_cast<u64>(swizzle_atom_bytes >> 4) << 32 | 1ull << 62;
}
__device__ __forceinline__ u64 operand_descriptor(unsigned int shared, int panel_bytes) {
  return operand_at(operand_place(shared), panel_bytes);
}

/// What to add to a descriptor for an operand `bytes` further on.
__device__ __forceinline__ constexpr u64 descriptor_offset(int bytes) { return static_cast<u64>(bytes >> 4); }

/// Registers of operands and accumulators that other instructions wrote become visible to the products that follow.
__device__ __forceinline__ void products_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// This thread's stores to shared memory become visible to products and copies, which read by another way; a barrier
/// has to follow. PTX ISA: fence.proxy.async.
__device__ __forceinline__ void products_see_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/// Closes the group of the products started since the last call.
__device__ __forceinline__ void close_product_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Waits until at most `pending` groups are still under way.
template <int pending>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
/// Keeps the compiler from moving uses of accumulators above the wait that makes them valid.
template <int count>
__device__ __forceinline__ void pin(float (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(values[i])::"memory");
}
template <int count>
__device__ __forceinline__ void pin(unsigned int (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

}  // namespace flashspan_device
