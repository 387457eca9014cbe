// portions.cuh -- rows of tiles cut into portions that different blocks work on, for calls with too few rows to fill a
// card. The last block that is done with a portion of a row puts the row together, always in the order of the portions,
// so that the result does not depend on who was last.
#pragma once

#include "attention/work.cuh"
#include "ptx/across_blocks.cuh"

namespace flashspan_device {

/// Number of every row's first portion: of row i, portions[i] to portions[i + 1]. In shared memory.
struct PortionTable {
  int first[split_rows ? portions_wanted + 1 : 1];

  /// By the whole block; barriers. `count_of(row)` is the number of tiles of a row; there are fewer rows than threads
  /// and than portions_wanted. How long a portion is follows from what all rows visit.
  template <typename CountOf>
  __device__ __forceinline__ void divide(int rows, const CountOf& count_of) {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < rows) first[thread + 1] = count_of(thread);
    __syncthreads();
    if (thread < 32) {
      long long tiles = 0;
      for (int row = thread; row < rows; row += 32) tiles += first[row + 1];
      for (int distance = 16; distance > 0; distance /= 2) tiles += __shfl_xor_sync(0xffffffffu, tiles, distance);
      const long long fair = (tiles + portions_wanted - 1) / portions_wanted;
      const int length = fair < least_portion_tiles ? least_portion_tiles : static_cast<int>(fair);
      int before = 0;
      for (int chunk = 0; chunk < rows; chunk += 32) {
        const int row = chunk + thread;
        const int count = row < rows ? first[row + 1] : 0;
        int end = count > length ? (count - 1) / length + 1 : 1;
        for (int distance = 1; distance < 32; distance *= 2) {
          const int other = __shfl_up_sync(0xffffffffu, end, distance);
          if (thread >= distance) end += other;
        }
        if (row < rows) first[row + 1] = before + end;
        before += __shfl_sync(0xffffffffu, end, 31);
      }
      if (thread == 0) first[0] = 0;
    }
    __syncthreads();
  }

  /// The row that a portion belongs to.
  __device__ __forceinline__ int row_of(int portion, int rows) const {
    int low = 0;
    int high = rows;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first[middle] <= portion) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

/// What a warp knows about its 16 rows after one portion: results by the maxima, which a lane has of its two rows, and
/// the lane's part of the sums.
struct PartialRows {
  static constexpr int blocks = padded_v / 8;
  static constexpr int block_floats = 32 * 4;
  static constexpr int floats = (blocks + 1) * block_floats;

  float* first;  // of this lane

  /// This lane's four of a block of eight columns; of block `blocks`, its maxima and sums.
  __device__ __forceinline__ float* at(long long block) const { return first + block * block_floats; }

  __device__ static PartialRows of(const SplitArguments& split, int portion, int warp) {
    const long long place = static_cast<long long>(portion) * split.warps + warp;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return {split.partials + place * floats + static_cast<long long>(lane) * 4};
  }
  __device__ __forceinline__ void store(const float (&out)[padded_v / 2], const float (&maximum)[2],
                                        const float (&sum)[2]) const {
#pragma unroll
    for (int i = 0; i < padded_v / 2; i += 4) store_for_others(at(i / 4), out[i], out[i + 1], out[i + 2], out[i + 3]);
    store_for_others(at(blocks), maximum[0], maximum[1], sum[0], sum[1]);
  }
};

/// One portion of a row that a warp is done with: counts it, and tells about all that were.
struct Arrivals {
  static constexpr int careful_one = 1 << 16;

  bool all;          // this portion was the last
  bool any_careful;  // if so: one of them was worked on carefully

  /// By a whole warp, whose stores of the portion are then seen by the warp that comes last.
  __device__ static Arrivals add(int* ticket, int portions, bool careful) {
    __threadfence();
    __syncwarp();
    int before = 0;
    const int mine = careful ? careful_one + 1 : 1;
    if (threadIdx.x % 32 == 0) before = atomicAdd(ticket, mine);
    const int now = __shfl_sync(0xffffffffu, before, 0) + mine;
    __threadfence();
    return {now % careful_one == portions, now >= careful_one};
  }
};

/// Puts a row together: results, maxima and sums of a lane, as if its tiles had been one portion. `exponent` as in
/// RunningSoftmax::update.
__device__ inline void combine_portions(const SplitArguments& split, int first_portion, int portions, int warp,
                                        float exponent, float (&out)[padded_v / 2], float (&maximum)[2],
                                        float (&sum)[2]) {
  maximum[0] = maximum[1] = minus_infinity();
  sum[0] = sum[1] = 0.f;
#pragma unroll
  for (int i = 0; i < padded_v / 2; ++i) out[i] = 0.f;
#pragma unroll 1
  for (int i = 0; i < portions; ++i) {
    const PartialRows partial = PartialRows::of(split, first_portion + i, warp);
    float values[4];
    load_from_others(values, partial.at(PartialRows::blocks));
    float factor[2];
    float rescale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float highest = fmaxf(maximum[half], values[half]);
      const float least = highest == minus_infinity() ? 0.f : highest;
      factor[half] = exp2_fast((values[half] - least) * exponent);
      rescale[half] = exp2_fast((maximum[half] - least) * exponent);
      sum[half] = sum[half] * rescale[half] + values[2 + half] * factor[half];
      maximum[half] = highest;
    }
#pragma unroll
    for (int block = 0; block < PartialRows::blocks; ++block) {
      load_from_others(values, partial.at(block));
#pragma unroll
      for (int e = 0; e < 4; ++e) out[4 * block + e] = out[4 * block + e] * rescale[e / 2] + values[e] * factor[e / 2];
    }
  }
}

}  // namespace flashspan_device
