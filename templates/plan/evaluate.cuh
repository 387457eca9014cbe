// evaluate.cuh -- exact evaluation, pair by pair, of a tile that interval analysis left open.
#pragma once

#include "generated/mask_program.cuh"
#include "plan/classify.cuh"
#include "plan/tile_grid.cuh"

namespace flashspan_device {

constexpr int words_per_row = 4;  // of a bit tile
constexpr int bits_per_word = block_n / words_per_row;
static_assert(block_n % 8 == 0 && bits_per_word <= 32, "a row of a tile is four words");
static_assert(!bits_by_key || block_m <= 128, "so is one of a key");
// A thread makes one word of several rows, this far apart.
constexpr int row_step = plan_threads / words_per_row;
constexpr int rows_per_thread = (block_m + row_step - 1) / row_step;
constexpr int tile_groups = (block_m + group_rows - 1) / group_rows;
static_assert(tile_groups <= 8, "a bit each in TileEntry::unseeing");

/// A value of each of two neighbouring columns.
struct alignas(8) ColumnPair {
  int of[2];
};

/// What lookups give in the rows and the columns of one tile; 0 past the lengths.
struct TileValues {
  int rows[held<MaskProgram::row_lookups>][block_m];
  ColumnPair columns[held<MaskProgram::column_lookups>][block_n / 2];

  /// By the whole block; a block barrier has to follow.
  __device__ __forceinline__ void look_up(const TileGrid& grid, const ProgramArguments& mask, int b, int h,
                                          const TileExtent& at) {
#pragma unroll 1  // saves registers, and there are few rounds
    for (int i = static_cast<int>(threadIdx.x); i < block_m + block_n; i += plan_threads) {
      const int column = i - block_m;
      if (MaskProgram::row_lookups > 0 && column < 0) {
        int values[held<MaskProgram::row_lookups>] = {};
        if (i < at.rows) MaskProgram::look_up_row(mask, values, b, h, at.first_q + i, grid.q_len, grid.kv_len);
        for (int n = 0; n < MaskProgram::row_lookups; ++n) rows[n][i] = values[n];
      }
      if (MaskProgram::column_lookups > 0 && column >= 0) {
        int values[held<MaskProgram::column_lookups>] = {};
        if (column < at.columns) {
          MaskProgram::look_up_column(mask, values, b, h, at.first_k + column, grid.q_len, grid.kv_len);
        }
        for (int n = 0; n < MaskProgram::column_lookups; ++n) columns[n][column / 2].of[column % 2] = values[n];
      }
    }
  }
};

/// The words of one thread's rows.
struct ThreadWords {
  unsigned int bits[rows_per_thread];

  __device__ static int quad() { return static_cast<int>(threadIdx.x) % words_per_row; }
  __device__ static int row(int i) { return static_cast<int>(threadIdx.x) / words_per_row + i * row_step; }

  /// Pair by pair. What a column's lookups gave is read once for all rows.
  __device__ __forceinline__ void evaluate(const TileGrid& grid, const ProgramArguments& mask, int b, int h,
                                           const TileExtent& at, const TileValues& values) {
    int row_values[rows_per_thread][held<MaskProgram::row_lookups>];
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      bits[i] = 0;
      for (int n = 0; n < MaskProgram::row_lookups; ++n)
        row_values[i][n] = row(i) < block_m ? values.rows[n][row(i)] : 0;
    }
#pragma unroll 1
    for (int block = 0; block < block_n / 8; ++block) {
      ColumnPair pairs[held<MaskProgram::column_lookups>];
      for (int n = 0; n < MaskProgram::column_lookups; ++n) pairs[n] = values.columns[n][block * 4 + quad()];
#pragma unroll
      for (int i = 0; i < rows_per_thread; ++i) bits[i] >>= 2;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        int column_values[held<MaskProgram::column_lookups>];
        for (int n = 0; n < MaskProgram::column_lookups; ++n) column_values[n] = pairs[n].of[e];
        const int k = at.first_k + block * 8 + quad() * 2 + e;
#pragma unroll
        for (int i = 0; i < rows_per_thread; ++i) {
          if (MaskProgram::visible(mask, row_values[i], column_values, b, h, at.first_q + row(i), k, grid.q_len,
                                   grid.kv_len)) {
            bits[i] |= 0x40000000u << e;
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) bits[i] >>= 32 - bits_per_word;
  }
};

/// The word of a row that sees all of `columns` columns.
__device__ __forceinline__ unsigned int full_word(int columns, int quad) {
  const int rest = columns % 8 - 2 * quad;
  const int bits = columns / 8 * 2 + (rest < 0 ? 0 : rest > 2 ? 2 : rest);
  return bits == 32 ? 0xffffffffu : (1u << bits) - 1;
}

/// A slot for the bits of a partial tile, or evaluated_tile if none is left.
__device__ __forceinline__ int take_slot(const AttentionParameters& p) {
  if (p.by_query.bit_slots == 0) return evaluated_tile;
  const int slot = atomicAdd(p.scratch.slots_taken, 1);
  return slot < p.by_query.bit_slots ? slot : evaluated_tile;
}

/// By the whole block, which has passed a barrier since the last tile.
__device__ __forceinline__ void store_bits(const AttentionParameters& p, const ThreadWords& words, int slot) {
  if constexpr (bits_by_query) {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      const long long row = static_cast<long long>(slot) * block_m + ThreadWords::row(i);
      if (ThreadWords::row(i) < block_m) p.by_query.bits[row * words_per_row + ThreadWords::quad()] = words.bits[i];
    }
  }
  if constexpr (bits_by_key) {
    __shared__ unsigned int of_queries[block_m * words_per_row];
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      if (ThreadWords::row(i) < block_m) {
        of_queries[ThreadWords::row(i) * words_per_row + ThreadWords::quad()] = words.bits[i];
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < block_n * words_per_row; i += plan_threads) {
      const int key = i / words_per_row;
      unsigned int word = 0;
#pragma unroll 4
      for (int e = 0; e < block_m / words_per_row; ++e) {
        const int q = e / 2 * 8 + i % words_per_row * 2 + e % 2;
        word |= (of_queries[q * words_per_row + key % 8 / 2] >> (key / 8 * 2 + key % 2) & 1u) << e;
      }
      p.by_key.bits[static_cast<long long>(slot) * block_n * words_per_row + i] = word;
    }
  }
}

/// By the whole block.
__device__ __forceinline__ void evaluate_tile(const AttentionParameters& p, const TileGrid& grid,
                                              const ProgramArguments& mask, const TilePlace& place,
                                              TileValues& values) {
  __shared__ int settled;
  const int b = grid.batch_of(place.list);
  const int h = grid.head_of(place.list);
  const TileExtent at = grid.extent(place);
  values.look_up(grid, mask, b, h, at);
  __syncthreads();
  ThreadWords words;
  words.evaluate(grid, mask, b, h, at, values);
  const unsigned int inside = full_word(at.columns, ThreadWords::quad());
  unsigned int seeing = 0;  // bit g: a row of group g sees something
  bool hidden_found = false;
#pragma unroll
  for (int i = 0; i < rows_per_thread; ++i) {
    words.bits[i] &= ThreadWords::row(i) < at.rows ? inside : 0;
    if (words.bits[i] != 0) seeing |= 1u << ThreadWords::row(i) / group_rows;
    hidden_found = hidden_found || (ThreadWords::row(i) < at.rows && words.bits[i] != inside);
  }
  unsigned int unseeing = 0;
#pragma unroll
  for (int group = 0; group < tile_groups; ++group) {
    if (__syncthreads_or(static_cast<int>(seeing >> group & 1u)) == 0) unseeing |= 1u << group;
  }
  const bool any_visible = unseeing != (1u << tile_groups) - 1;
  const bool any_hidden = __syncthreads_or(hidden_found) != 0;
  if (threadIdx.x == 0) {
    settled = !any_visible ? empty_tile : !any_hidden ? full_tile : take_slot(p);
    settle(p, grid, place, settled, settled == full_tile ? 0 : unseeing);
  }
  __syncthreads();
  if (settled < 0) return;
  store_bits(p, words, settled);
}

}  // namespace flashspan_device
