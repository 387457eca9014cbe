// Total division and wrapping arithmetic of the mask language, against their definitions.
#include "check.cuh"
#include "mask/arithmetic.cuh"

using namespace flashspan_device;

/// Largest m with m * b <= a (b > 0), by search.
__device__ int floor_by_search(int a, int b) {
  int quotient = 0;
  while (quotient * b > a) --quotient;
  while ((quotient + 1) * b <= a) ++quotient;
  return quotient;
}

template <typename T>
__device__ void divide_small(Checks* checks) {
  for (int a = -13; a <= 13; ++a) {
    EXPECT(floor_divide<T>(a, 0) == 0);
    EXPECT(floor_modulo<T>(a, 0) == 0);
    for (int b = -5; b <= 5; ++b) {
      if (b == 0) continue;
      const int expected = b > 0 ? floor_by_search(a, b) : floor_by_search(-a, -b);
      EXPECT(floor_divide<T>(a, b) == expected);
      EXPECT(floor_modulo<T>(a, b) == a - b * expected);
    }
  }
}

extern "C" __global__ void attention_forward(Checks* checks) {
  if (threadIdx.x != 0) return;
  divide_small<int>(checks);
  divide_small<int64>(checks);
  const int64 smallest = static_cast<int64>(0x8000000000000000ull);
  EXPECT(floor_divide<int64>(smallest, -1) == smallest);
  EXPECT(floor_modulo<int64>(smallest, -1) == 0);
  EXPECT(wrapping_add(0x7fffffffffffffffll, 1) == smallest);
  EXPECT(wrapping_subtract(smallest, 1) == 0x7fffffffffffffffll);
  EXPECT(wrapping_multiply(0x4000000000000000ll, 2) == smallest);
  EXPECT(divide_or_zero(3.f, 0.f) == 0.f);
  EXPECT(divide_or_zero(3.f, 2.f) == 1.5f);
  int data[6] = {1, 2, 3, 4, 5, 6};
  LookupTensor tensor = {data, {3, 1, 0, 0, 0}, {2, 3, 0, 0, 0}, 0};
  EXPECT(lookup_integer<2>(tensor, Indices<2>{{1, 2}}) == 6);
  EXPECT(lookup_integer<2>(tensor, Indices<2>{{2, 0}}) == 0);
  EXPECT(lookup_integer<2>(tensor, Indices<2>{{0, -1}}) == 0);
  EXPECT(lookup_integer<2>(tensor, Indices<2>{{0x100000000ll, 0}}) == 0);
}
