// made_up_address.hpp -- pointers and handles that are only compared, never followed.
#pragma once

#include <cstdint>

namespace flashspan::cuda {

template <typename Pointer = void*>
Pointer made_up_address(std::uintptr_t value) {
  return reinterpret_cast<Pointer>(value);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace flashspan::cuda
