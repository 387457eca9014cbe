// stream_timer.hpp -- how long the device takes for work on a stream, between two events.
#pragma once

#include <functional>

#include "flashspan/core/error.hpp"
#include "runtime/cuda/driver_api.hpp"

namespace flashspan::cuda {

/// Milliseconds from the first to the last of what `queue` puts on the stream, which is waited for. The device's
/// context must be current, and the stream must not be captured. Error: that of `queue`; device_error, also of the
/// work.
[[nodiscard]] Result<double> stream_milliseconds(const DriverApi& driver, CUstream stream,
                                                 const std::function<Result<void>()>& queue);

}  // namespace flashspan::cuda
