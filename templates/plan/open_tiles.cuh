// open_tiles.cuh -- the planner's second half: evaluates the tiles that interval analysis left open, and lists the
// rows. The blocks share the open tiles evenly without talking to one another: every block counts them all in one fixed
// order and takes those whose number falls to it. The one that settles a group's last tile lists its rows when its
// share is done.
#pragma once

#include "plan/evaluate.cuh"
#include "plan/lists.cuh"

namespace flashspan_device {

/// Sum over the threads before this one, and over all of the block.
struct BlockSum {
  int before;
  int all;
};

__device__ __forceinline__ BlockSum sum_over_block(int value) {
  __shared__ int of_warps[plan_threads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  int inclusive = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, inclusive, distance);
    if (lane >= distance) inclusive += other;
  }
  __syncthreads();  // an earlier sum has been read
  if (lane == 31) of_warps[warp] = inclusive;
  __syncthreads();
  BlockSum sum = {inclusive - value, 0};
  for (int i = 0; i < plan_threads / 32; ++i) {
    if (i < warp) sum.before += of_warps[i];
    sum.all += of_warps[i];
  }
  return sum;
}

/// A thread's share of scratch.undecided in one round of the block.
struct OpenTiles {
  static constexpr int words = 8;
  static constexpr int words_per_round = words * plan_threads;
  unsigned int word[words];

  __device__ static int place(int i) { return i * plan_threads + static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ void load(const unsigned int* undecided, int first, int end) {
#pragma unroll
    for (int i = 0; i < words; ++i) {
      const int at = first + place(i);
      word[i] = at < end ? undecided[at] : 0;
    }
  }
  __device__ __forceinline__ int count() const {
    int sum = 0;
#pragma unroll
    for (int i = 0; i < words; ++i) sum += __popc(word[i]);
    return sum;
  }
  /// Writes down which bits of the round tiles [begin, end) of this thread's are, the one of `begin` first.
  __device__ __forceinline__ void write_down(int begin, int end, int* bits) const {
    int n = 0;
#pragma unroll
    for (int i = 0; i < words; ++i) {
      const int after = n + __popc(word[i]);
      for (unsigned int rest = after > begin && n < end ? word[i] : 0; rest != 0; rest &= rest - 1, ++n) {
        if (n >= begin && n < end) bits[n - begin] = place(i) * 32 + __ffs(static_cast<int>(rest)) - 1;
      }
      n = after;
    }
  }
};

/// By the whole block.
__device__ __forceinline__ int open_tiles_of(const AttentionParameters& p, const TileGrid& grid,
                                             const RowGroup& group) {
  int count = 0;
  const int words = grid.patches_of_group(group) * words_per_patch;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < words; i += plan_threads) {
    const long long patch = grid.patch_of_group(group, i / words_per_patch);
    count += __popc(p.scratch.undecided[patch * words_per_patch + i % words_per_patch]);
  }
  return sum_over_block(count).all;
}

/// Most tiles that a block takes in a round: there are either most_plan_blocks, or no fewer blocks than tiles.
constexpr int most_tiles_of_share = OpenTiles::words_per_round * 32 / most_plan_blocks + 1;

/// The first of `tiles` tiles of a round that a block takes, of so many blocks.
__device__ __forceinline__ int share_begin(int tiles, int block, int blocks) {
  static_assert(OpenTiles::words_per_round * 32 <= 1 << 16, "times a block, of as many at most, in 32 bits");
  return static_cast<int>(static_cast<unsigned int>(tiles) * static_cast<unsigned int>(block) /
                          static_cast<unsigned int>(blocks));
}

/// What a block has settled and is to list. In shared memory, and of its first thread alone: the first to know of a
/// tile that it is settled, and as registers they would cost all threads.
/// Volatile, as the compiler would have all threads load what one of them uses, beside stores of that one.
struct BlockProgress {
  volatile int patch;          // of the tiles settled and not yet counted
  volatile int settled;        // so many
  volatile int first_to_list;  // group of rows, -1: none. Each names the next where its open tiles were counted

  __device__ __forceinline__ void start() {
    patch = 0;
    settled = 0;
    first_to_list = -1;
  }

  /// Tiles of the group were found open (positive), or have been settled (negative). Whoever brings the sum to 0 has
  /// seen all of both, as no other sum is 0: until the open ones are added it is negative, and then positive. That
  /// block is to list the rows.
  __device__ __forceinline__ void count(const AttentionParameters& p, const TileGrid& grid, const RowGroup& group,
                                        int change) {
    const int number = grid.number_of(group);
    if (add_release_acquire(p.scratch.open_tiles + number, change) != 0) return;
    p.scratch.open_tiles[number] = first_to_list;
    first_to_list = number;
  }

  __device__ __forceinline__ void count_settled(const AttentionParameters& p, const TileGrid& grid) {
    if (settled == 0) return;
    const TilePlace first = grid.first_tile(patch);
    count(p, grid, RowGroup{first.list, false, first.query_tile / patch_side}, -settled);
    if (grid.by_key) count(p, grid, RowGroup{first.list, true, first.key_tile / patch_side}, -settled);
    settled = 0;
  }

  /// The last group of those to be listed, which is then none of them; -1: there is none.
  __device__ __forceinline__ int take(const AttentionParameters& p) {
    const int group = first_to_list;
    if (group >= 0) first_to_list = p.scratch.open_tiles[group];
    return group;
  }
};

/// By every block of the grid. Settles every tile of scratch.undecided, and writes the lists.
__device__ __forceinline__ void list_tiles(const AttentionParameters& p, const TileGrid& grid,
                                           const ProgramArguments& mask) {
  __shared__ TileValues values;
  __shared__ BlockProgress progress;
  __shared__ int share[most_tiles_of_share];  // bits of the round
  __shared__ int group;
  const bool first_thread = threadIdx.x == 0;
  const int blocks = static_cast<int>(gridDim.x);
  if (first_thread) progress.start();
  for (int i = static_cast<int>(blockIdx.x); i < grid.lists * grid.groups_per_list(); i += blocks) {
    const int open = open_tiles_of(p, grid, grid.group(i));
    if (first_thread) progress.count(p, grid, grid.group(i), open);
  }
  const int end = grid.lists * grid.patches * words_per_patch;
  int turn = static_cast<int>(blockIdx.x);  // another block is the first in each round
  for (int first = 0; first < end; first += OpenTiles::words_per_round, turn = (turn + 1) % blocks) {
    OpenTiles open;
    open.load(p.scratch.undecided, first, end);
    const BlockSum sum = sum_over_block(open.count());
    // Neighbours, which are of one patch as a rule.
    const int begin_of_share = share_begin(sum.all, turn, blocks);
    const int end_of_share = share_begin(sum.all, turn + 1, blocks);
    open.write_down(begin_of_share - sum.before, end_of_share - sum.before, share);
    __syncthreads();
    for (int n = 0; n < end_of_share - begin_of_share; ++n) {
      const int patch = first / words_per_patch + share[n] / patch_tiles;
      const int in_patch = share[n] % patch_tiles;
      evaluate_tile(p, grid, mask, TileGrid::tile_of_patch(grid.first_tile(patch), in_patch), values);
      if (first_thread) {
        if (patch != progress.patch) progress.count_settled(p, grid);
        progress.patch = patch;
        progress.settled = progress.settled + 1;
      }
    }
  }
  if (first_thread) progress.count_settled(p, grid);
  while (true) {
    if (first_thread) group = progress.take(p);
    __syncthreads();
    if (group < 0) return;
    list_group(p, grid, grid.group(group));
  }
}

}  // namespace flashspan_device
