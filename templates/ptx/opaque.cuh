// opaque.cuh -- values about which the compiler knows nothing.
#pragma once

namespace flashspan_device {

/// The value; what is computed from it stays here. Terms that do not change in a loop would else be computed before it,
/// and take registers from all of it.
__device__ __forceinline__ int computed_here(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

}  // namespace flashspan_device
