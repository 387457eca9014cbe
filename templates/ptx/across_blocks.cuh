// across_blocks.cuh -- what blocks hand to one another through global memory, past the cache of an SM: four floats, and
// words that tell that something is there. PTX ISA: ld, cache operator .cg; memory consistency model.
#pragma once

namespace flashspan_device {

/// `from` is a multiple of 16 bytes.
__device__ __forceinline__ void load_from_others(float (&values)[4], const float* from) {
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
               : "l"(from)
               : "memory");
}
__device__ __forceinline__ void store_for_others(float* to, float a, float b, float c, float d) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

/// What others wrote before the word that this finds is there for this thread, and for its block after its next
/// barrier.
__device__ __forceinline__ unsigned long long load_acquire(const unsigned long long* from) {
  unsigned long long word;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
/// What this thread knows of is there for whoever finds the word.
__device__ __forceinline__ void store_release(unsigned long long* to, unsigned long long word) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

}  // namespace flashspan_device
