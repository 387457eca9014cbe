// order.cuh -- the rows of one list, most expensive first: bitonic sort in shared memory.
#pragma once

#include "attention/parameters.cuh"

namespace flashspan_device {

/// Longer lists are visited as if all their rows were equals: with so many rows their order no longer matters.
constexpr int most_sorted_rows = 2048;

/// How the rows of a list are ordered.
struct RowOrder {
  int alike;         // costs that differ by less may count as equal
  bool first_first;  // among equals the first row comes first, else the last

  /// The i-th of `rows` equals. Its own inverse.
  __device__ __forceinline__ int among_equals(int i, int rows) const { return first_first ? i : rows - 1 - i; }
};

using SortKey = unsigned long long;

/// By the whole block. `order` holds the cost of every row, and then the rows.
__device__ inline void order_rows(int* order, int rows, const RowOrder& by) {
  __shared__ SortKey keys[most_sorted_rows];
  const int thread = static_cast<int>(threadIdx.x);
  if (rows > most_sorted_rows) {
#pragma unroll 1
    for (int i = thread; i < rows; i += plan_threads) order[i] = by.among_equals(i, rows);
    return;
  }
  int padded = 1;
  while (padded < rows) padded *= 2;
  const volatile int* const costs = order;  // written by other blocks: not from a cache of this SM
  // Unrolled, the loops would take more registers than all else in their kernel, and an SM hold fewer blocks of it.
#pragma unroll 1
  for (int i = thread; i < padded; i += plan_threads) {
    // The largest key comes first, and what is no row last.
    const SortKey tie = static_cast<SortKey>(rows - 1 - by.among_equals(i, rows));
    keys[i] = i < rows ? (static_cast<SortKey>(costs[i] / by.alike) + 1) << 32 | tie : 0;
  }
  __syncthreads();
  for (int width = 2; width <= padded; width *= 2) {
    for (int distance = width / 2; distance > 0; distance /= 2) {
#pragma unroll 1
      for (int i = thread; i < padded / 2; i += plan_threads) {
        const int low = 2 * i - (i & (distance - 1));
        const int high = low + distance;
        const bool descending = (low & width) == 0;
        const SortKey a = keys[low];
        const SortKey b = keys[high];
        if ((a < b) == descending) {
          keys[low] = b;
          keys[high] = a;
        }
      }
      __syncthreads();
    }
  }
#pragma unroll 1
  for (int i = thread; i < rows; i += plan_threads) {
    order[i] = by.among_equals(rows - 1 - static_cast<int>(keys[i] & 0xffffffffu), rows);
  }
}

}  // namespace flashspan_device
