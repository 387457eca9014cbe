// opaque.cuh -- values about which the compiler knows nothing.
#pragma once

namespace flashspan_device {

/// The value; what is computed from it stays here. Terms that do not change in a loop would else be computed before it,
/// and take registers from all of it.
__device__ __forceinline__ int computed_here(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

/// The value, computed by here, and not again where it is used. For what a wait would else be followed by: between a
/// wait and a product, a dozen uniform instructions in a chain are time in which nothing is multiplied.
__device__ __forceinline__ unsigned int computed_ahead(unsigned int value) {
  asm volatile("" : "+r"(value));
  return value;
}

}  // namespace flashspan_device
