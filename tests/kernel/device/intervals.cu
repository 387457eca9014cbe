// Interval operations hold every result of their operation, and comparisons decide only what is so.
#include "check.cuh"
#include "mask/interval.cuh"

using namespace flashspan_device;

constexpr int reach = 4;

/// Calls `visit` with every interval in [-reach, reach], one of its values given in turn.
template <typename Visit>
__device__ void for_each_pair(const Visit& visit) {
  for (int lo = -reach; lo <= reach; ++lo) {
    for (int hi = lo; hi <= reach; ++hi) {
      const int width = 2 * reach + 1;
      const int other_lo = static_cast<int>(threadIdx.x) % width - reach;
      for (int other_hi = other_lo; other_hi <= reach; ++other_hi)
        visit(Interval{lo, hi}, Interval{other_lo, other_hi});
    }
  }
}

extern "C" __global__ void attention_forward(Checks* checks) {
  for_each_pair([&](Interval a, Interval b) {
    const Interval sum = interval_add(a, b);
    const Interval difference = interval_subtract(a, b);
    const Interval product = interval_multiply(a, b);
    const Interval quotient = interval_floor_divide(a, b);
    const Interval remainder = interval_modulo(a, b);
    const Interval magnitude = interval_absolute(a);
    const Truth is_less = truth_less(a, b);
    const Truth is_at_most = truth_less_equal(a, b);
    const Truth is_equal = truth_equal(a, b);
    for (int64 x = a.lo; x <= a.hi; ++x) {
      EXPECT(contains(magnitude, x < 0 ? -x : x));
      for (int64 y = b.lo; y <= b.hi; ++y) {
        EXPECT(contains(sum, x + y));
        EXPECT(contains(difference, x - y));
        EXPECT(contains(product, x * y));
        EXPECT(contains(quotient, floor_divide(x, y)));
        EXPECT(contains(remainder, floor_modulo(x, y)));
        EXPECT(x < y ? is_less.can_be_true : is_less.can_be_false);
        EXPECT(x <= y ? is_at_most.can_be_true : is_at_most.can_be_false);
        EXPECT(x == y ? is_equal.can_be_true : is_equal.can_be_false);
      }
    }
  });
  // Whatever may wrap may be anything.
  EXPECT(interval_add(single(largest_integer), single(1)).lo == smallest_integer);
  EXPECT(interval_multiply(single(largest_integer), single(2)).hi == largest_integer);
  EXPECT(interval_negate(single(smallest_integer)).hi == largest_integer);

  __shared__ int data[96];
  for (int i = static_cast<int>(threadIdx.x); i < 96; i += static_cast<int>(blockDim.x)) data[i] = (i * 37) % 101 - 50;
  __syncthreads();
  const LookupTensor tensor = {data, {12, 1, 0, 0, 0}, {8, 12, 0, 0, 0}, 0};
  for (int lo = -2; lo < 13; ++lo) {
    const Interval range = lookup_range<2>(tensor, Box<2>{{{2, 5}, {lo, lo + 3}}});
    int lowest = 1000;
    int highest = -1000;
    for (int row = 2; row <= 5; ++row) {
      for (int column = lo; column <= lo + 3; ++column) {
        const int value = column < 0 || column >= 12 ? 0 : data[row * 12 + column];
        lowest = value < lowest ? value : lowest;
        highest = value > highest ? value : highest;
      }
    }
    EXPECT(range.lo == lowest && range.hi == highest);
  }
}
