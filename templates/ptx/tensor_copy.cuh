// tensor_copy.cuh -- wrappers of the copy engine's tile copies from global to shared memory (sm_90 and later).
#pragma once

#include "ptx/barrier.cuh"

namespace flashspan_device {

/// `map` is a kernel argument: a tensor as the driver describes it (cuTensorMapEncodeTiled).
__device__ __forceinline__ void prefetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Starts the copy of the box at (column, row, head, batch); its bytes complete on `barrier`. Elements outside the
/// tensor become zero. By one thread. PTX ISA: cp.async.bulk.tensor.
__device__ __forceinline__ void copy_box(u32 shared, const void* map, TransferBarrier& barrier, int column, int row,
                                         int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::
          "r"(shared),
      "l"(map), "r"(shared_address(&barrier)), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

/// Starts the copy of `bytes` neighbours; both addresses and the size are multiples of 16. By one thread. PTX ISA:
/// cp.async.bulk.
__device__ __forceinline__ void copy_bytes(u32 shared, const void* global, u32 bytes, TransferBarrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(shared_address(&barrier))
               : "memory");
}

}  // namespace flashspan_device
