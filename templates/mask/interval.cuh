// interval.cuh -- interval analysis on the device: what codegen/mask/tile_intervals.cpp computes on the host, operation
// by operation, so that both decide every tile alike. A whole warp works on one tile; every value is uniform in it.
#pragma once

#include "mask/arithmetic.cuh"

namespace flashspan_device {

constexpr int64 smallest_integer = static_cast<int64>(0x8000000000000000ull);
constexpr int64 largest_integer = 0x7fffffffffffffffll;
constexpr unsigned int max_lookup_box = 1024;
constexpr int64 max_analysed_trips = 256;

struct Interval {
  int64 lo;
  int64 hi;
};

/// What a boolean may be somewhere in the tile.
struct Truth {
  bool can_be_false;
  bool can_be_true;
};

enum class TileClass { empty, full, partial };

__device__ __forceinline__ int64 smaller(int64 a, int64 b) { return a < b ? a : b; }
__device__ __forceinline__ int64 larger(int64 a, int64 b) { return a > b ? a : b; }
__device__ __forceinline__ Interval single(int64 value) { return {value, value}; }
__device__ __forceinline__ Interval whole_range() { return {smallest_integer, largest_integer}; }
__device__ __forceinline__ Interval hull(Interval a, Interval b) { return {smaller(a.lo, b.lo), larger(a.hi, b.hi)}; }
__device__ __forceinline__ bool contains(Interval a, int64 value) { return a.lo <= value && value <= a.hi; }

__device__ __forceinline__ bool add_wraps(int64 a, int64 b, int64* sum) {
  *sum = wrapping_add(a, b);
  return ((a ^ *sum) & (b ^ *sum)) < 0;
}
__device__ __forceinline__ bool subtract_wraps(int64 a, int64 b, int64* difference) {
  *difference = wrapping_subtract(a, b);
  return ((a ^ b) & (a ^ *difference)) < 0;
}
__device__ __forceinline__ bool multiply_wraps(int64 a, int64 b, int64* product) {
  *product = wrapping_multiply(a, b);
  return __mul64hi(a, b) != (*product < 0 ? -1 : 0);
}

__device__ inline Interval interval_add(Interval a, Interval b) {
  Interval result;
  const bool low = add_wraps(a.lo, b.lo, &result.lo);
  const bool high = add_wraps(a.hi, b.hi, &result.hi);
  return low || high ? whole_range() : result;
}

__device__ inline Interval interval_subtract(Interval a, Interval b) {
  Interval result;
  const bool low = subtract_wraps(a.lo, b.hi, &result.lo);
  const bool high = subtract_wraps(a.hi, b.lo, &result.hi);
  return low || high ? whole_range() : result;
}

__device__ inline Interval interval_multiply(Interval a, Interval b) {
  int64 ll;
  int64 lh;
  int64 hl;
  int64 hh;
  const bool first = multiply_wraps(a.lo, b.lo, &ll);
  const bool second = multiply_wraps(a.lo, b.hi, &lh);
  const bool third = multiply_wraps(a.hi, b.lo, &hl);
  const bool fourth = multiply_wraps(a.hi, b.hi, &hh);
  if (first || second || third || fourth) return whole_range();
  return {smaller(smaller(ll, lh), smaller(hl, hh)), larger(larger(ll, lh), larger(hl, hh))};
}

__device__ inline Interval interval_minimum(Interval a, Interval b) {
  return {smaller(a.lo, b.lo), smaller(a.hi, b.hi)};
}
__device__ inline Interval interval_maximum(Interval a, Interval b) { return {larger(a.lo, b.lo), larger(a.hi, b.hi)}; }
__device__ inline Interval interval_negate(Interval a) {
  if (a.lo == smallest_integer) return whole_range();
  return {-a.hi, -a.lo};
}
__device__ inline Interval interval_absolute(Interval a) {
  if (a.lo == smallest_integer) return whole_range();
  if (a.lo >= 0) return a;
  if (a.hi <= 0) return {-a.hi, -a.lo};
  return {0, larger(-a.lo, a.hi)};
}

__device__ inline Interval divide_by_one_sign(Interval a, Interval b) {
  const int64 ll = floor_divide(a.lo, b.lo);
  const int64 lh = floor_divide(a.lo, b.hi);
  const int64 hl = floor_divide(a.hi, b.lo);
  const int64 hh = floor_divide(a.hi, b.hi);
  return {smaller(smaller(ll, lh), smaller(hl, hh)), larger(larger(ll, lh), larger(hl, hh))};
}

/// Union of up to three parts, of which there is at least one.
struct Parts {
  Interval all = {0, 0};
  bool any = false;
  __device__ void join(Interval part) {
    all = any ? hull(all, part) : part;
    any = true;
  }
};

__device__ inline Interval interval_floor_divide(Interval a, Interval b) {
  if (a.lo == smallest_integer && contains(b, -1)) return whole_range();
  Parts parts;
  if (contains(b, 0)) parts.join({0, 0});
  if (b.hi > 0) parts.join(divide_by_one_sign(a, {larger(b.lo, 1), b.hi}));
  if (b.lo < 0) parts.join(divide_by_one_sign(a, {b.lo, smaller(b.hi, -1)}));
  return parts.all;
}

__device__ inline Interval modulo_by_positive(Interval a, Interval b) {
  if (b.lo == b.hi && floor_divide(a.lo, b.lo) == floor_divide(a.hi, b.lo)) {
    return {floor_modulo(a.lo, b.lo), floor_modulo(a.hi, b.lo)};
  }
  if (a.lo >= 0 && a.hi < b.lo) return a;
  return {0, a.lo >= 0 ? smaller(a.hi, b.hi - 1) : b.hi - 1};
}

__device__ inline Interval modulo_by_negative(Interval a, Interval b) {
  if (b.lo == b.hi && floor_divide(a.lo, b.lo) == floor_divide(a.hi, b.lo)) {
    return {floor_modulo(a.lo, b.lo), floor_modulo(a.hi, b.lo)};
  }
  if (a.hi <= 0 && a.lo > b.hi) return a;
  return {a.hi <= 0 ? larger(a.lo, b.lo + 1) : b.lo + 1, 0};
}

__device__ inline Interval interval_modulo(Interval a, Interval b) {
  Parts parts;
  if (contains(b, 0)) parts.join({0, 0});
  if (b.hi > 0) parts.join(modulo_by_positive(a, {larger(b.lo, 1), b.hi}));
  if (b.lo < 0) parts.join(modulo_by_negative(a, {b.lo, smaller(b.hi, -1)}));
  return parts.all;
}

__device__ __forceinline__ Truth truth(bool can_be_false, bool can_be_true) { return {can_be_false, can_be_true}; }
__device__ __forceinline__ Truth undecided() { return {true, true}; }
__device__ __forceinline__ Truth known(bool value) { return {!value, value}; }
__device__ __forceinline__ Truth truth_less(Interval a, Interval b) { return {a.hi >= b.lo, a.lo < b.hi}; }
__device__ __forceinline__ Truth truth_less_equal(Interval a, Interval b) { return {a.hi > b.lo, a.lo <= b.hi}; }
__device__ __forceinline__ Truth truth_equal(Interval a, Interval b) {
  return {a.lo != a.hi || b.lo != b.hi || a.lo != b.lo, a.lo <= b.hi && b.lo <= a.hi};
}
__device__ __forceinline__ Truth truth_not(Truth a) { return {a.can_be_true, a.can_be_false}; }
__device__ __forceinline__ Truth truth_not_equal(Interval a, Interval b) { return truth_not(truth_equal(a, b)); }
__device__ __forceinline__ Truth truth_and(Truth a, Truth b) {
  return {a.can_be_false || b.can_be_false, a.can_be_true && b.can_be_true};
}
__device__ __forceinline__ Truth truth_or(Truth a, Truth b) {
  return {a.can_be_false && b.can_be_false, a.can_be_true || b.can_be_true};
}

__device__ __forceinline__ Interval choose(Truth condition, Interval if_true, Interval if_false) {
  if (!condition.can_be_false) return if_true;
  if (!condition.can_be_true) return if_false;
  return hull(if_true, if_false);
}
__device__ __forceinline__ Truth choose(Truth condition, Truth if_true, Truth if_false) {
  if (!condition.can_be_false) return if_true;
  if (!condition.can_be_true) return if_false;
  return {if_true.can_be_false || if_false.can_be_false, if_true.can_be_true || if_false.can_be_true};
}

template <int rank>
struct Box {
  Interval at[rank];
};

/// Range of the elements that a box of indices can ask for; the warp looks at them together.
template <int rank>
__device__ __forceinline__ Interval lookup_range(const LookupTensor& tensor, Box<rank> box) {
  bool may_be_outside = false;
  unsigned int count = 1;
  int64 first = 0;  // offset of the first element
  unsigned int counts[rank];
#pragma unroll
  for (int axis = 0; axis < rank; ++axis) {
    const Interval index = box.at[axis];
    const int extent = tensor.extent[axis];
    may_be_outside = may_be_outside || index.lo < 0 || index.hi >= extent;
    if (extent == 0 || index.hi < 0 || index.lo >= extent) return single(0);
    const int lo = index.lo < 0 ? 0 : static_cast<int>(index.lo);
    const int hi = index.hi >= extent ? extent - 1 : static_cast<int>(index.hi);
    first += lo * tensor.stride[axis];
    // The compiler knows batch and head to be single: their axes cost no division.
    const bool is_one_element = index.lo == index.hi || tensor.stride[axis] == 0;
    const unsigned int indices = static_cast<unsigned int>(hi - lo) + 1;
    counts[axis] = is_one_element ? 1 : indices <= max_lookup_box ? indices : max_lookup_box + 1;
    count = count > max_lookup_box ? count : count * counts[axis];
  }
  Interval elements = {-2147483648ll, 2147483647ll};
  if (count <= max_lookup_box) {
    int lowest = 2147483647;
    int highest = -2147483647 - 1;
#pragma unroll 4  // in flight together
    for (unsigned int i = threadIdx.x % 32; i < count; i += 32) {
      unsigned int rest = i;
      int64 offset = first;
#pragma unroll
      for (int axis = rank - 1; axis > 0; --axis) {
        offset += rest % counts[axis] * tensor.stride[axis];
        rest /= counts[axis];
      }
      offset += rest * tensor.stride[0];
      const int element = static_cast<const int*>(tensor.data)[offset];
      lowest = element < lowest ? element : lowest;
      highest = element > highest ? element : highest;
    }
    elements = {__reduce_min_sync(0xffffffffu, lowest), __reduce_max_sync(0xffffffffu, highest)};
  }
  return may_be_outside ? hull(elements, single(0)) : elements;
}

/// Values that a loop variable may take in the tile; see tile_intervals.cpp, follow_loop().
struct LoopRange {
  Interval begin;
  Interval end;
  __device__ bool is_empty() const { return begin.lo >= end.hi; }
  __device__ bool is_too_long() const {
    int64 trips;
    return subtract_wraps(end.hi, begin.lo, &trips) || trips > max_analysed_trips;
  }
  __device__ bool always_takes(int64 value) const { return begin.hi <= value && value < end.lo; }
};

}  // namespace flashspan_device
