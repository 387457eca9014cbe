// across_blocks.cuh -- words between blocks on the host, whether they run one after another or at the same time.
#pragma once

namespace flashspan_device {

inline unsigned long long load_acquire(const unsigned long long* from) {
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
inline void store_release(unsigned long long* to, unsigned long long word) {
  __atomic_store_n(to, word, __ATOMIC_RELEASE);
}

}  // namespace flashspan_device
