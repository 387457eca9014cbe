// device.hpp -- a CUDA block on the host: the text of a kernel compiles and runs as it is, every thread of the block on
// a stack of its own, so that the kernels are tested where there is no GPU. Included before the kernel's text, in a
// library of its own (see emulated_kernel.cpp); ptx/ beside this file stands in for templates/ptx.
//
// What it finds that a GPU may hide: shared memory read before it is written (it starts as NaN), writes past the shared
// memory asked for, asynchronous copies read before they were waited for, collective instructions that not every lane
// reaches, and bank conflicts of ldmatrix. What it cannot find: races between two barriers.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

// Every kernel that is emulated is compiled with these: <algorithm>, <functional> and <memory> would be a quarter of
// it.
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static  // the blocks run one after another, in one host thread

struct ThreadIndex {
  unsigned int x = 0;
};
inline ThreadIndex threadIdx;
inline ThreadIndex blockIdx;
inline ThreadIndex gridDim;

/// The block's dynamic shared memory, under the name and the linkage that the kernels declare.
constexpr int emulated_shared_bytes = 256 * 1024;
extern "C" {
alignas(16) unsigned short shared[emulated_shared_bytes / 2];
extern unsigned short score_sum_shared[] __attribute__((alias("shared")));
}

namespace emulation {

constexpr int lanes = 32;
constexpr std::size_t stack_bytes = 128 * 1024;

/// Of 16 bytes, zeros if `from` is null.
struct PendingCopy {
  void* to = nullptr;
  const void* from = nullptr;
};

struct Thread {
  ucontext_t start{};  ///< on its stack
  jmp_buf place{};     ///< where it yielded, once it has begun
  bool begun = false;
  std::vector<char> stack = std::vector<char>(stack_bytes);
  bool finished = false;
  bool waiting = false;
  void* argument = nullptr;  ///< of the collective operation it waits in
  std::deque<std::vector<PendingCopy>> copy_groups;
};

/// Threads that meet in collective operations: a warp, or the block.
struct Group {
  std::vector<Thread*> threads;
  const char* operation = nullptr;  ///< what those that have arrived wait for
  int arrived = 0;
};

struct Block {
  std::vector<Thread> threads;
  std::vector<Group> warps;
  Group all;
  Thread* running = nullptr;
  jmp_buf scheduler{};
  const void* kernel = nullptr;  ///< what `call` calls
  void (*call)(const void* kernel) = nullptr;
  std::string failure;
  long long bank_conflicts = 0;
};
inline Block block;

// Threads change places by jumps: swapcontext() would ask the system for the signal mask at each, and there are
// millions.
inline void yield() {
  if (_setjmp(block.running->place) == 0) _longjmp(block.scheduler, 1);
}

/// Until it yields.
inline void resume(Thread& thread) {
  if (_setjmp(block.scheduler) != 0) return;
  if (thread.begun) _longjmp(thread.place, 1);
  thread.begun = true;
  setcontext(&thread.start);
}

[[noreturn]] inline void fail(const std::string& what) {
  block.failure = what + " (block " + std::to_string(blockIdx.x) + ", thread " + std::to_string(threadIdx.x) + ")";
  for (;;) yield();
}

inline int alive(const Group& group) {
  int count = 0;
  for (const Thread* thread : group.threads) count += thread->finished ? 0 : 1;
  return count;
}

inline void release(Group& group) {
  group.arrived = 0;
  group.operation = nullptr;
  for (Thread* thread : group.threads) thread->waiting = false;
}

/// Waits until all of the group are here; the last to come runs `complete`, which sees every thread's argument.
template <typename Complete>
void meet(Group& group, const char* operation, void* argument, const Complete& complete) {
  if (group.operation != nullptr && std::strcmp(group.operation, operation) != 0) {
    fail(std::string("threads diverge: some are in ") + group.operation + ", one in " + operation);
  }
  group.operation = operation;
  block.running->argument = argument;
  block.running->waiting = true;
  if (++group.arrived == alive(group)) {
    complete();
    release(group);
    return;
  }
  while (block.running->waiting) yield();
}

inline Group& warp() { return block.warps[threadIdx.x / lanes]; }

/// As meet(), for the 32 lanes of a warp: all of them have to come.
template <typename Argument, typename Complete>
void meet_in_warp(const char* operation, Argument& argument, const Complete& complete) {
  if (alive(warp()) != lanes) fail(std::string(operation) + " in a warp whose lanes have not all stayed");
  meet(warp(), operation, &argument, [&complete] {
    std::array<Argument*, lanes> arguments{};
    for (int lane = 0; lane < lanes; ++lane) {
      arguments[static_cast<std::size_t>(lane)] =
          static_cast<Argument*>(warp().threads[static_cast<std::size_t>(lane)]->argument);
    }
    complete(arguments);
  });
}

inline void run_thread() {
  block.call(block.kernel);
  block.running->finished = true;
  // Whoever waits for all that are left may have waited for this one.
  if (block.all.arrived > 0 && block.all.arrived == alive(block.all)) release(block.all);
  for (;;) yield();
}

inline void start_threads(int count) {
  block.threads.resize(static_cast<std::size_t>(count));
  block.warps.assign(static_cast<std::size_t>(count / lanes), {});
  block.all = {};
  for (std::size_t i = 0; i < block.threads.size(); ++i) {
    Thread& thread = block.threads[i];
    thread.begun = false;
    thread.finished = false;
    thread.waiting = false;
    thread.copy_groups.assign(1, {});
    block.warps[i / lanes].threads.push_back(&thread);
    block.all.threads.push_back(&thread);
    getcontext(&thread.start);
    thread.start.uc_stack.ss_sp = thread.stack.data();
    thread.start.uc_stack.ss_size = stack_bytes;
    makecontext(&thread.start, run_thread, 0);
  }
}

inline void run_block(int threads) {
  std::memset(shared, 0xff, sizeof(shared));  // NaN in every format
  start_threads(threads);
  for (bool progress = true; progress && block.failure.empty();) {
    progress = false;
    for (std::size_t i = 0; i < block.threads.size() && block.failure.empty(); ++i) {
      Thread& thread = block.threads[i];
      if (thread.finished || thread.waiting) continue;
      progress = true;
      block.running = &thread;
      threadIdx.x = static_cast<unsigned int>(i);
      resume(thread);
    }
  }
  if (block.failure.empty() && alive(block.all) != 0) {
    block.failure = "threads wait for each other for ever (block " + std::to_string(blockIdx.x) + ")";
  }
}

/// Runs `blocks` blocks one after another, from the first or from the last on. "" or what went wrong.
template <typename Kernel>
const char* run_grid(long long blocks, int threads, bool last_first, int shared_bytes, const Kernel& kernel) {
  block.failure.clear();
  block.kernel = &kernel;
  block.call = [](const void* called) { (*static_cast<const Kernel*>(called))(); };
  gridDim.x = static_cast<unsigned int>(blocks);
  for (long long i = 0; i < blocks && block.failure.empty(); ++i) {
    blockIdx.x = static_cast<unsigned int>(last_first ? blocks - 1 - i : i);
    run_block(threads);
    for (int at = shared_bytes / 2; at < emulated_shared_bytes / 2 && block.failure.empty(); ++at) {
      if (shared[at] != 0xffff) block.failure = "a write past the shared memory asked for";
    }
  }
  return block.failure.c_str();
}

}  // namespace emulation

// Built-in functions of CUDA C++, as far as the templates use them.

inline void __syncthreads() {
  emulation::meet(emulation::block.all, "a block barrier", nullptr, [] {});
}
inline int __syncthreads_or(int value) {
  struct Vote {
    int value;
    int result;
  } vote = {value, 0};
  emulation::meet(emulation::block.all, "a block vote", &vote, [] {
    int any = 0;
    const auto vote_of = [](const emulation::Thread* thread) { return static_cast<Vote*>(thread->argument); };
    for (const emulation::Thread* thread : emulation::block.all.threads) {
      if (!thread->finished) any |= vote_of(thread)->value;
    }
    for (const emulation::Thread* thread : emulation::block.all.threads) {
      if (!thread->finished) vote_of(thread)->result = any;
    }
  });
  return vote.result;
}

inline void __syncwarp() {
  int nothing = 0;
  emulation::meet_in_warp("a warp barrier", nothing, [](const std::array<int*, emulation::lanes>&) {});
}

/// Every lane gives a value and gets what `combine` makes of all 32 for it.
template <typename T, typename Combine>
T exchange_in_warp(const char* operation, T value, const Combine& combine) {
  struct Slot {
    T value;
    T result;
  } slot = {value, {}};
  emulation::meet_in_warp(operation, slot, [&combine](const std::array<Slot*, emulation::lanes>& slots) {
    std::array<T, emulation::lanes> values{};
    for (std::size_t lane = 0; lane < slots.size(); ++lane) values[lane] = slots[lane]->value;
    for (std::size_t lane = 0; lane < slots.size(); ++lane) slots[lane]->result = combine(values, lane);
  });
  return slot.result;
}
template <typename T>
T __shfl_xor_sync(unsigned int, T value, int distance) {
  return exchange_in_warp("a shuffle", value, [distance](const auto& values, std::size_t lane) {
    return values[lane ^ static_cast<std::size_t>(distance)];
  });
}
template <typename T>
T __shfl_up_sync(unsigned int, T value, int distance) {
  return exchange_in_warp("a shuffle", value, [distance](const auto& values, std::size_t lane) {
    const auto down = static_cast<std::size_t>(distance);
    return values[lane < down ? lane : lane - down];
  });
}
inline unsigned int __ballot_sync(unsigned int, int value) {
  return exchange_in_warp("a ballot", static_cast<unsigned int>(value), [](const auto& values, std::size_t) {
    unsigned int votes = 0;
    for (std::size_t lane = 0; lane < values.size(); ++lane) votes |= (values[lane] != 0 ? 1u : 0u) << lane;
    return votes;
  });
}
inline int __any_sync(unsigned int, int value) {
  return exchange_in_warp("a vote", value, [](const auto& values, std::size_t) {
    int any = 0;
    for (const int one : values) any |= one != 0 ? 1 : 0;
    return any;
  });
}
inline int __reduce_min_sync(unsigned int, int value) {
  return exchange_in_warp("a minimum", value, [](const auto& values, std::size_t) {
    int least = values[0];
    for (const int one : values) least = one < least ? one : least;
    return least;
  });
}
inline int __reduce_max_sync(unsigned int, int value) {
  return exchange_in_warp("a maximum", value, [](const auto& values, std::size_t) {
    int most = values[0];
    for (const int one : values) most = one > most ? one : most;
    return most;
  });
}
inline unsigned int atomicOr(unsigned int* word, unsigned int bits) {
  const unsigned int before = *word;
  *word |= bits;
  return before;
}

inline int atomicAdd(int* word, int value) {
  const int before = *word;
  *word += value;
  return before;
}
inline float atomicAdd(float* to, float value) {
  const float before = *to;
  *to += value;
  return before;
}
inline unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
  const unsigned long long before = *to;
  *to += value;
  return before;
}
inline unsigned long long atomicOr(unsigned long long* to, unsigned long long bits) {
  const unsigned long long before = *to;
  *to |= bits;
  return before;
}
inline unsigned long long atomicCAS(unsigned long long* word, unsigned long long expected, unsigned long long value) {
  const unsigned long long before = *word;
  if (before == expected) *word = value;
  return before;
}
/// Through bytes: the kernels keep the bits of a float there.
inline int atomicMax(int* to, int value) {
  int before = 0;
  std::memcpy(&before, to, sizeof(before));
  const int after = before < value ? value : before;
  std::memcpy(to, &after, sizeof(after));
  return before;
}
inline void __threadfence() {}
/// Between two looks at what another block is to write: no other is running.
inline void __nanosleep(unsigned int) { emulation::fail("a block waits for another"); }

inline int __popc(unsigned int bits) { return std::popcount(bits); }
inline int __ffs(int bits) { return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned int>(bits)) + 1; }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline float __uint_as_float(unsigned int bits) { return std::bit_cast<float>(bits); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __int2float_rn(int value) { return static_cast<float>(value); }
inline float __ll2float_rn(long long value) { return static_cast<float>(value); }
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>((static_cast<__int128>(a) * b) >> 64);
}
