// work_shares.cuh -- work that has to be done before any block of a grid goes on, in as many shares as there are
// blocks. A block that is done with a share takes the next one that nobody has, so that those of blocks that have not
// started are done as well: whoever waits, waits for blocks that run. No kernel has to come before to clear what they
// count in.
#pragma once

#include "attention/parameters.cuh"
#include "plan/counters.cuh"
#include "ptx/across_blocks.cuh"

namespace flashspan_device {

/// All of it by one thread of each block, which calls first(), next() for as long as it has a share, and
/// wait_for_all().
struct WorkShares {
  unsigned long long* word;  // from the highest bit on: mark, blocks that have come, shares that are done
  int count;                 // of shares, and of blocks

  static constexpr int count_bits = 12;
  static_assert(most_plan_blocks < 1 << count_bits, "blocks and shares are counted in so many bits");
  static constexpr unsigned long long one_done = 1;
  static constexpr unsigned long long one_come = one_done << count_bits;
  // Tells a word that is counted in from one that holds what a workspace happens to hold. In every format of floats it
  // is NaN, as addresses and small integers it is none, and no grid leaves it with anything but zeros behind.
  static constexpr unsigned long long mark = 0xffb57fad9bull << 2 * count_bits;

  /// The block's first share; past the last: it has none.
  __device__ __forceinline__ int first() const {
    const unsigned long long found = load_acquire(word);
    // Where this does not find `found` any more, another block has set the mark.
    if (found >> 2 * count_bits != mark >> 2 * count_bits) atomicCAS(word, found, mark);
    return take(one_come);
  }

  /// The share that the block had is done: what it has written before its last barrier is there for whoever waits. The
  /// next one, as first().
  __device__ __forceinline__ int next() const { return take(one_done); }

  /// What all shares have written is then there for this thread, and for its block after its next barrier.
  __device__ __forceinline__ void wait_for_all() const {
    // This block has come. Where none has, all had, and all was done.
    for (unsigned long long now = load_acquire(word); come(now) != 0 && done(now) != count; now = load_acquire(word)) {
      __nanosleep(pause_nanoseconds);
    }
  }

 private:
  static constexpr int pause_nanoseconds = 50;

  __device__ static int done(unsigned long long word) { return static_cast<int>(word) & ((1 << count_bits) - 1); }
  __device__ static int come(unsigned long long word) { return done(word >> count_bits); }

  /// Every block comes once and every share is done once. Each of these gets a number, and who gets that of a share
  /// has the share; the last of all leaves the word for the next grid.
  __device__ __forceinline__ int take(unsigned long long event) const {
    const unsigned long long now = add_release_acquire(word, event);
    const int events = come(now) + done(now);
    if (events == 2 * count) store_release(word, mark);
    return events - 1;
  }
};

}  // namespace flashspan_device
