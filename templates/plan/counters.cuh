// counters.cuh -- how blocks of one kernel hand on work: by counters, of which the last block to add goes on with what
// all others have written. None of them ever waits.
#pragma once

namespace flashspan_device {

/// By one thread of a block. The sum, this addition included. What this thread has written, and its block before its
/// last barrier, is there for whoever adds later; and what earlier ones wrote is there for this thread, and for its
/// block after its next barrier.
__device__ __forceinline__ int add_release_acquire(int* counter, int change) {
  __threadfence();
  const int sum = atomicAdd(counter, change) + change;
  __threadfence();
  return sum;
}

}  // namespace flashspan_device
