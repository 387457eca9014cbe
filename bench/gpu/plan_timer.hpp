// plan_timer.hpp -- how long the planning of a forward takes on the GPU: a captured call without its last kernel,
// replayed.
#pragma once

#include <functional>

#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"

namespace flashspan::bench {

/// Microseconds of all kernels but the last that `launch` queues on a stream, one after another; 0 if there is but one.
/// Median of `rounds`. Error: device_error, naming the driver's function; what `launch` returns.
[[nodiscard]] Result<double> planning_microseconds(int ordinal, int rounds,
                                                   const std::function<Result<void>(Stream)>& launch);

}  // namespace flashspan::bench
