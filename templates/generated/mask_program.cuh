// mask_program.cuh -- stand-in for the generated header of the same name: a causal mask and a soft cap.
#pragma once

#include "mask/interval.cuh"

namespace flashspan_device {

struct MaskProgram {
  static __device__ __forceinline__ bool visible(const ProgramArguments& arguments, int b, int h, int q, int k,
                                                 int q_len, int kv_len) {
    (void)arguments, (void)b, (void)h;
    return k <= q + (kv_len - q_len);
  }

  static __device__ TileClass classify(const ProgramArguments& arguments, Interval b, Interval h, Interval q,
                                       Interval k, int q_len, int kv_len) {
    (void)arguments, (void)b, (void)h;
    const Truth root = truth_less_equal(k, interval_add(q, single(kv_len - q_len)));
    return !root.can_be_true ? TileClass::empty : root.can_be_false ? TileClass::partial : TileClass::full;
  }

  static __device__ __forceinline__ float score(const ProgramArguments& arguments, int b, int h, int q, int k,
                                                int q_len, int kv_len, float score) {
    (void)arguments, (void)b, (void)h, (void)q, (void)k, (void)q_len, (void)kv_len;
    return score * 0.5f;
  }

  static __device__ __forceinline__ float score_gradient(const ProgramArguments& arguments, int b, int h, int q, int k,
                                                         int q_len, int kv_len, float score) {
    (void)arguments, (void)b, (void)h, (void)q, (void)k, (void)q_len, (void)kv_len, (void)score;
    return 0.5f;
  }
};

}  // namespace flashspan_device
