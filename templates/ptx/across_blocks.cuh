// across_blocks.cuh -- four floats that blocks hand to one another through global memory, past the cache of an SM.
#pragma once

namespace flashspan_device {

/// `from` is a multiple of 16 bytes. PTX ISA: ld, cache operator .cg.
__device__ __forceinline__ void load_from_others(float (&values)[4], const float* from) {
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
               : "l"(from)
               : "memory");
}
__device__ __forceinline__ void store_for_others(float* to, float a, float b, float c, float d) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

}  // namespace flashspan_device
