// warpgroup_work.cuh -- what the kernels of the hopper family share: rings of stages, rows that come first, flags of
// accumulator columns, and rows of accumulators as memory.
#pragma once

#include "attention/work.cuh"
#include "ptx/tensor_copy.cuh"
#include "ptx/warpgroup.cuh"

namespace flashspan_device {

/// Place in a ring, and the parity of its barriers' phase. Who fills a ring begins with parity 1: every place is free
/// at first, as if the phase before the first were over.
template <int places>
struct Ring {
  int index = 0;
  u32 parity = 0;
  __device__ __forceinline__ void advance() {
    if (++index == places) {
      index = 0;
      parity ^= 1;
    }
  }
};

/// Items handed over at a time: the next one is looked up while one is worked on.
constexpr int item_slots = 2;
/// In place of an item's count.
constexpr int no_more_items = -1;

/// So many ranks of all heads come before all others (item_order.cuh), because there are rows among them that outweigh
/// the rest: keys that every query sees, beside a window, say. Taken with the rest of a late section, one of those
/// would keep all blocks waiting for its end. By the plan's first list, as all blocks have to find the same.
__device__ __forceinline__ int outlying_ranks(const TilePlanArguments& plan, int rows, int across) {
  if constexpr (!has_plan) return 0;
  const int ranks = (rows + 31) / 32;
  if (ranks == rows) return 0;
  const int longest = tile_list(plan, 0, 0, plan.order[0], rows, across).count;
  const int ordinary = tile_list(plan, 0, 0, plan.order[ranks], rows, across).count;
  return longest > 2 * ordinary ? ranks : 0;
}

/// Starts the copies of a panel of `rows` rows, in boxes of `box_rows`.
template <int rows, int box_rows>
__device__ __forceinline__ void copy_panel(u32 shared, const TensorMap* map, TransferBarrier& barrier, int column,
                                           int row, int head, int batch) {
#pragma unroll
  for (int box = 0; box < rows; box += box_rows) {
    copy_box(shared + box * panel_row_bytes, map, barrier, column, row + box, head, batch);
  }
}

/// Flags of word `word` for the elements in columns below `limit`, counted from the lane's first column.
__device__ __forceinline__ u32 columns_below(int limit, int word) {
  const int within = limit & 7;
  const int elements = (limit >> 3) * 2 + (within < 2 ? within : 2) - 32 * word;
  return elements <= 0 ? 0u : elements >= 32 ? 0xffffffffu : ~(0xffffffffu << elements);
}

/// Lane t of the four that share a row gives its four registers and gets register t of each: rows of a 4 x 4 matrix
/// become columns.
__device__ __forceinline__ void transpose_among_four(u32 (&values)[4]) {
  const bool odd = (threadIdx.x & 1) != 0;
  const bool upper = (threadIdx.x & 2) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const u32 got = __shfl_xor_sync(0xffffffffu, odd ? values[i] : values[i + 1], 1);
    if (odd) {
      values[i] = got;
    } else {
      values[i + 1] = got;
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const u32 got = __shfl_xor_sync(0xffffffffu, upper ? values[i] : values[i + 2], 2);
    if (upper) {
      values[i] = got;
    } else {
      values[i + 2] = got;
    }
  }
}

/// Writes columns [0, columns) of one row of results from `row` on, 16 bytes a lane, those below `head_dim` alone.
/// `half` says which of the lane's two rows.
template <int columns>
__device__ __forceinline__ void store_row(unsigned short* row, const float (&values)[columns / 2], int half,
                                          float factor, bool inside, int head_dim) {
  constexpr int blocks = columns / 8;
  const int lane = static_cast<int>(threadIdx.x) % 4;
  EightElements* const to = reinterpret_cast<EightElements*>(row) + lane;
#pragma unroll
  for (int first = 0; first < blocks; first += 4) {
    u32 pairs[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int block = first + i;
      if (block < blocks) {
        pairs[i] = pack_pair<is_bf16>(values[4 * block + 2 * half] * factor, values[4 * block + 2 * half + 1] * factor);
      }
    }
    transpose_among_four(pairs);
    if (inside && (first + lane) * 8 < head_dim) to[first] = EightElements{{pairs[0], pairs[1], pairs[2], pairs[3]}};
  }
}

/// True in every lane if one of the lane's results is NaN or infinite.
template <int count>
__device__ __forceinline__ bool any_non_finite(const float (&values)[count]) {
  constexpr int chains = 4;
  float sums[chains] = {};  // stay 0 as long as all are finite
#pragma unroll
  for (int i = 0; i < count; ++i) sums[i % chains] = values[i] * 0.f + sums[i % chains];
  const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return __any_sync(0xffffffffu, sum != 0.f) != 0;
}

}  // namespace flashspan_device
