// mask_program.cuh -- stand-in for the generated header of the same name: a causal mask within documents, the ranges of
// one without, and a soft cap.
#pragma once

#include "mask/index_range.cuh"
#include "mask/interval.cuh"

namespace flashspan_device {

struct MaskProgram {
  static constexpr int row_lookups = 1;
  static constexpr int column_lookups = 1;
  static constexpr bool lookups_by_tile = false;

  static __device__ __forceinline__ bool visible(const ProgramArguments& arguments, int b, int h, int q, int k,
                                                 int q_len, int kv_len) {
    int row[1];
    int column[1];
    look_up_row(arguments, row, b, h, q, q_len, kv_len);
    look_up_column(arguments, column, b, h, k, q_len, kv_len);
    return visible(arguments, row, column, b, h, q, k, q_len, kv_len);
  }

  static __device__ __forceinline__ bool visible(const ProgramArguments& arguments, const int* row, const int* column,
                                                 int b, int h, int q, int k, int q_len, int kv_len) {
    (void)arguments, (void)b, (void)h;
    return k <= q + (kv_len - q_len) && row[0] == column[0];
  }

  static __device__ __forceinline__ void look_up_row(const ProgramArguments& arguments, int* values, int b, int h,
                                                     int q, int q_len, int kv_len) {
    (void)b, (void)h, (void)q_len, (void)kv_len;
    values[0] = lookup_integer<1>(arguments.tensors[0], Indices<1>{{q}});
  }

  static __device__ __forceinline__ void analyse_row(const ProgramArguments& arguments, Interval* ranges, Interval b,
                                                     Interval h, Interval q, int q_len, int kv_len) {
    (void)b, (void)h, (void)q_len, (void)kv_len;
    ranges[0] = lookup_range<1>(arguments.tensors[0], Box<1>{{q}});
  }

  static __device__ __forceinline__ void look_up_column(const ProgramArguments& arguments, int* values, int b, int h,
                                                        int k, int q_len, int kv_len) {
    (void)b, (void)h, (void)q_len, (void)kv_len;
    values[0] = lookup_integer<1>(arguments.tensors[0], Indices<1>{{k}});
  }

  static __device__ __forceinline__ void analyse_column(const ProgramArguments& arguments, Interval* ranges, Interval b,
                                                        Interval h, Interval k, int q_len, int kv_len) {
    (void)b, (void)h, (void)q_len, (void)kv_len;
    ranges[0] = lookup_range<1>(arguments.tensors[0], Box<1>{{k}});
  }

  static __device__ __forceinline__ TileClass classify(const ProgramArguments& arguments, const Interval* row,
                                                       const Interval* column, Interval b, Interval h, Interval q,
                                                       Interval k, int q_len, int kv_len) {
    (void)arguments, (void)b, (void)h;
    const Truth causal = truth_less_equal(k, interval_add(q, single(kv_len - q_len)));
    const Truth root = truth_and(causal, truth_equal(row[0], column[0]));
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

  static constexpr int row_ranges = 1;

  static __device__ __forceinline__ void ranges_of_row(const ProgramArguments& arguments, int b, int h, int q,
                                                       int q_len, int kv_len, int (&begin)[1], int (&end)[1]) {
    (void)arguments, (void)b, (void)h;
    cut_range(0, q + (kv_len - q_len) + 1, kv_len, begin[0], end[0]);
  }

  static constexpr int column_ranges = 0;

  static __device__ __forceinline__ void ranges_of_column(const ProgramArguments& arguments, int b, int h, int k,
                                                          int q_len, int kv_len, int (&begin)[1], int (&end)[1]) {
    (void)arguments, (void)b, (void)h, (void)k, (void)q_len, (void)kv_len;
    begin[0] = end[0] = 0;
  }
};

}  // namespace flashspan_device
