// index_range.cuh -- ranges of visible keys or queries, as generated programs compute them.
#pragma once

#include "mask/arithmetic.cuh"

namespace flashspan_device {

/// `value`, an int or an int64, brought into [0, length].
template <typename T>
__device__ __forceinline__ int within_length(T value, int length) {
  return value < 0 ? 0 : value > length ? length : static_cast<int>(value);
}

/// The part of [begin, end) that lies in [0, length); an empty one has cut_begin == cut_end.
template <typename Begin, typename End>
__device__ __forceinline__ void cut_range(Begin begin, End end, int length, int& cut_begin, int& cut_end) {
  cut_begin = within_length(begin, length);
  const int last = within_length(end, length);
  cut_end = last > cut_begin ? last : cut_begin;
}

}  // namespace flashspan_device
