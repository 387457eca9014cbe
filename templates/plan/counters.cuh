// counters.cuh -- how blocks of one kernel hand on work: by counters, of which the last block to add goes on with what
// all others have written.
#pragma once

namespace flashspan_device {

/// By one thread of a block. The sum, this addition included. What this thread has written, and its block before its
/// last barrier, is there for whoever adds later; and what earlier ones wrote is there for this thread, and for its
/// block after its next barrier.
template <typename Count>
__device__ __forceinline__ Count add_release_acquire(Count* counter, Count change) {
  __threadfence();
  const Count sum = atomicAdd(counter, change) + change;
  __threadfence();
  return sum;
}

}  // namespace flashspan_device
