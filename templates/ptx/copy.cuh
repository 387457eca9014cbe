// copy.cuh -- wrappers of the asynchronous 16-byte copy from global to shared memory (sm_80 and later).
#pragma once

namespace flashspan_device {

/// Starts a copy of 16 bytes, or writes 16 zero bytes and reads nothing if not `wanted`. Both addresses are multiples
/// of 16. PTX ISA: cp.async.
__device__ __forceinline__ void copy_16_bytes(unsigned int shared, const void* global, bool wanted) {
  const int bytes = wanted ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}

/// Closes the group of the copies started since the last call.
__device__ __forceinline__ void close_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most `pending` groups are still under way; of this thread: a block barrier has to follow.
template <int pending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace flashspan_device
