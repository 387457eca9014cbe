// score_lookups.cuh -- stand-in for the generated header of the same name: bias[h, q - k], scaled by a table of keys.
#pragma once

#include "mask/arithmetic.cuh"

namespace flashspan_device {

constexpr int score_lookups = 2;
constexpr int score_lookups_by_distance = 1;
constexpr int score_gradient_shared_bytes = 4 * 64 * (128 + 8) * 2 + 2 * 64 * 4 + 64 * 33 * 4;

template <int number>
struct ScoreLookup;

template <>
struct ScoreLookup<0> {
  static constexpr int gradient = 0;
  static constexpr int rank = 2;
  static constexpr bool by_query = true;
  static constexpr bool by_key = true;
  static constexpr int distance_sums = 0;

  static __device__ __forceinline__ Indices<2> indices(const ProgramArguments& arguments, int b, int h, int q, int k,
                                                       int q_len, int kv_len) {
    (void)arguments, (void)b, (void)q_len, (void)kv_len;
    return Indices<2>{{h, q - k}};
  }

  static __device__ __forceinline__ float slope(const ProgramArguments& arguments, int b, int h, int q, int k,
                                                int q_len, int kv_len, float score) {
    (void)b, (void)h, (void)q, (void)q_len, (void)kv_len, (void)score;
    return lookup_real<Element::f32, 1>(arguments.tensors[1], Indices<1>{{k}});
  }
};

template <>
struct ScoreLookup<1> {
  static constexpr int gradient = 1;
  static constexpr int rank = 1;
  static constexpr bool by_query = false;
  static constexpr bool by_key = true;
  static constexpr int distance_sums = -1;

  static __device__ __forceinline__ Indices<1> indices(const ProgramArguments& arguments, int b, int h, int q, int k,
                                                       int q_len, int kv_len) {
    (void)arguments, (void)b, (void)h, (void)q, (void)q_len, (void)kv_len;
    return Indices<1>{{k}};
  }

  static __device__ __forceinline__ float slope(const ProgramArguments& arguments, int b, int h, int q, int k,
                                                int q_len, int kv_len, float score) {
    (void)b, (void)q_len, (void)kv_len, (void)score;
    return lookup_real<Element::f32, 2>(arguments.tensors[0], Indices<2>{{h, q - k}});
  }
};

}  // namespace flashspan_device
