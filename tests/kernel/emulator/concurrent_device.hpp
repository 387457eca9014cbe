// concurrent_device.hpp -- what device.hpp is not: blocks of one thread each that run at the same time, each in a
// thread of the host. For templates by which blocks talk to one another. Included before the template's text, in a
// library of its own; ptx/ beside this file stands in for templates/ptx.
#pragma once

#include <thread>

#define __device__
#define __forceinline__ inline

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __nanosleep(unsigned int) { std::this_thread::yield(); }
inline unsigned long long atomicAdd(unsigned long long* word, unsigned long long value) {
  return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}
inline unsigned long long atomicCAS(unsigned long long* word, unsigned long long expected, unsigned long long value) {
  std::this_thread::yield();  // to one that may change the word first
  __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
