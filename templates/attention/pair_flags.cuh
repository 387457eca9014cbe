// pair_flags.cuh -- flags of a tile whose pairs are evaluated where they are needed, in the order of wgmma's
// accumulators.
#pragma once

#include "attention/warpgroup_work.cuh"

namespace flashspan_device {

/// What the mask has to know of one query, or of one key, beside its position: what lookups give, or by column_bounds
/// the ranges of queries that see a key.
template <bool of_query>
struct PairSide {
  static constexpr bool is_ranges = !of_query && lowering == Lowering::column_bounds;
  static constexpr int ranges = is_ranges && MaskProgram::column_ranges > 0 ? MaskProgram::column_ranges : 1;
  static constexpr int lookups = of_query ? MaskProgram::row_lookups : MaskProgram::column_lookups;
  static constexpr int count = is_ranges ? 2 * ranges : lookups;
  int values[count > 0 ? count : 1];

  __device__ __forceinline__ void look_up(const ProgramArguments& mask, int b, int h, int position, int q_len,
                                          int kv_len) {
    if constexpr (is_ranges) {
      int begin[ranges];
      int end[ranges];
      MaskProgram::ranges_of_column(mask, b, h, position, q_len, kv_len, begin, end);
#pragma unroll
      for (int range = 0; range < ranges; ++range) {
        values[range] = begin[range];
        values[ranges + range] = end[range];
      }
    } else if constexpr (of_query) {
      MaskProgram::look_up_row(mask, values, b, h, position, q_len, kv_len);
    } else {
      MaskProgram::look_up_column(mask, values, b, h, position, q_len, kv_len);
    }
  }

  __device__ __forceinline__ PairSide of_lane(int lane) const {
    PairSide theirs;
#pragma unroll
    for (int i = 0; i < count; ++i) theirs.values[i] = __shfl_sync(0xffffffffu, values[i], lane);
    return theirs;
  }
};

/// Whether a query sees a key, each with what is known of it.
__device__ __forceinline__ bool sees(const ProgramArguments& mask, const PairSide<true>& query,
                                     const PairSide<false>& key, int b, int h, int q, int k, int q_len, int kv_len) {
  if constexpr (PairSide<false>::is_ranges) {
    bool found = false;
#pragma unroll
    for (int range = 0; range < PairSide<false>::ranges; ++range) {
      found = found || (key.values[range] <= q && q < key.values[PairSide<false>::ranges + range]);
    }
    return found;
  } else {
    return MaskProgram::visible(mask, query.values, key.values, b, h, q, k, q_len, kv_len);
  }
}

/// Flags of a lane's two rows, `row` and eight below, beside `elements` columns: element e is column e / 2 * 8 + e % 2
/// past `column`. Rows are queries or keys, columns the other. By all lanes of a warp: the eight that have the same
/// columns look up one each and tell each other, as a lookup takes longer than the rest of a pair.
template <bool rows_are_queries, int elements>
__device__ __forceinline__ void evaluate_pairs(u32 (&words)[2], const ProgramArguments& mask, int b, int h, int row,
                                               int column, int q_len, int kv_len) {
  constexpr int sharing = 8;
  constexpr int lanes_apart = 4;
  const int lane = computed_here(static_cast<int>(threadIdx.x)) % 32;
  const auto column_of = [column](int e) { return column + e / 2 * 8 + e % 2; };
  PairSide<rows_are_queries> rows[2];
  rows[0].look_up(mask, b, h, row, q_len, kv_len);
  rows[1].look_up(mask, b, h, row + 8, q_len, kv_len);
  words[0] = words[1] = 0;
#pragma unroll 1
  for (int first = 0; first < elements; first += sharing) {
    PairSide<!rows_are_queries> mine;
    mine.look_up(mask, b, h, column_of(first + lane / lanes_apart), q_len, kv_len);
#pragma unroll 4
    for (int i = 0; i < sharing; ++i) {
      const PairSide<!rows_are_queries> shared = mine.of_lane(i * lanes_apart + lane % lanes_apart);
      const int at = column_of(first + i);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        bool found;
        if constexpr (rows_are_queries) {
          found = sees(mask, rows[half], shared, b, h, row + 8 * half, at, q_len, kv_len);
        } else {
          found = sees(mask, shared, rows[half], b, h, at, row + 8 * half, q_len, kv_len);
        }
        if (found) words[half] |= 1u << (first + i);
      }
    }
  }
}

}  // namespace flashspan_device
