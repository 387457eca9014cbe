// store.cuh -- writing two neighbouring results as 16-bit elements.
#pragma once

#include "ptx/convert.cuh"

namespace flashspan_device {

/// `aligned`: the address is a multiple of 4.
template <bool is_bf16, bool aligned>
__device__ __forceinline__ void store_pair(unsigned short* to, float low, float high) {
  const unsigned int pair = pack_pair<is_bf16>(low, high);
  if constexpr (aligned) {
    *reinterpret_cast<unsigned int*>(to) = pair;
  } else {
    to[0] = static_cast<unsigned short>(pair & 0xffffu);
    to[1] = static_cast<unsigned short>(pair >> 16);
  }
}

}  // namespace flashspan_device
