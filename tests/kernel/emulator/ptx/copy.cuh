// copy.cuh -- stands in for templates/ptx/copy.cuh on the host: a copy arrives when it is waited for, not before.
#pragma once

namespace flashspan_device {

inline void copy_16_bytes(unsigned int to, const void* global, bool wanted) {
  if (to % 16 != 0) emulation::fail("cp.async to an address that is not a multiple of 16");
  if (reinterpret_cast<std::uintptr_t>(global) % 16 != 0) {
    emulation::fail("cp.async from an address that is not a multiple of 16");
  }
  char* const target = reinterpret_cast<char*>(shared) + to;
  emulation::block.running->copy_groups.back().push_back({target, wanted ? global : nullptr});
}

inline void close_copy_group() { emulation::block.running->copy_groups.emplace_back(); }

/// The last group is still open and does not count.
template <int pending>
inline void wait_for_copies() {
  auto& groups = emulation::block.running->copy_groups;
  while (static_cast<int>(groups.size()) - 1 > pending) {
    for (const emulation::PendingCopy& copy : groups.front()) {
      if (copy.from != nullptr) {
        std::memcpy(copy.to, copy.from, 16);
      } else {
        std::memset(copy.to, 0, 16);
      }
    }
    groups.pop_front();
  }
}

}  // namespace flashspan_device
