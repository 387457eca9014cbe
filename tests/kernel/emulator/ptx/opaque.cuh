// opaque.cuh -- stands in for templates/ptx/opaque.cuh on the host.
#pragma once

namespace flashspan_device {

inline int computed_here(int value) { return value; }

}  // namespace flashspan_device
