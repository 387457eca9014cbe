// barrier.cuh -- wrappers of the barriers and of the register hand-over between warpgroups (sm_90 and later).
#pragma once

#include "ptx/matrix.cuh"

namespace flashspan_device {

/// One shared-memory barrier that counts arrivals and bytes. PTX ISA: mbarrier.
struct TransferBarrier {
  unsigned long long state;

  /// By one thread; barriers_visible() and a block barrier have to follow.
  __device__ __forceinline__ void init(u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals) : "memory");
  }
  __device__ __forceinline__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }
  /// Arrives, and adds `bytes` of transfers that have to complete in this phase.
  __device__ __forceinline__ void arrive_and_expect(u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes)
                 : "memory");
  }
  /// Waits for the end of the phase of the given parity (0 for the first). A barrier that has not ended any phase
  /// counts as having ended one of parity 1. The hint, in nanoseconds, lets the thread sleep until then: without it the
  /// processor tries again every few cycles, and what waits takes issue slots from what computes.
  __device__ __forceinline__ void wait(u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, %2;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}" ::"r"(shared_address(this)),
        "r"(parity), "r"(10000000)
        : "memory");
  }
  /// Whether wait() would return at once.
  __device__ __forceinline__ bool has_ended(u32 parity) const {
    u32 ended;
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}"
        : "=r"(ended)
        : "r"(shared_address(this)), "r"(parity)
        : "memory");
    return ended != 0;
  }
  /// As wait() without the hint, which takes a register: for short waits of threads that have none left.
  __device__ __forceinline__ void wait_awake(u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}" ::"r"(shared_address(this)),
        "r"(parity)
        : "memory");
  }
};

/// Makes initialised barriers visible to the copy engine. PTX ISA: fence.mbarrier_init.
__device__ __forceinline__ void barriers_visible() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Named barriers 1 to 15 of a block: `threads` of them take part, some by arriving only. PTX ISA: bar.sync,
/// bar.arrive.
__device__ __forceinline__ void named_barrier_wait(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

/// As named_barrier_wait, of all `threads`; true in each if `value` is true in one. PTX ISA: barrier.red.
__device__ __forceinline__ bool named_barrier_any(int barrier, int threads, bool value) {
  u32 any;
  asm volatile(
      "{\n"
      ".reg .pred mine, found;\n"
      "setp.ne.u32 mine, %3, 0;\n"
      "barrier.cta.red.or.pred found, %1, %2, mine;\n"
      "selp.u32 %0, 1, 0, found;\n"
      "}"
      : "=r"(any)
      : "r"(barrier), "r"(threads), "r"(static_cast<u32>(value))
      : "memory");
  return any != 0;
}

/// Gives registers of this warpgroup back, or takes more, until each thread has `count`. PTX ISA: setmaxnreg.
template <int count>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

}  // namespace flashspan_device
