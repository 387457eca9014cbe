// process_metrics.hpp -- the one Metrics that everything in a process counts into.
#pragma once

#include <memory>

#include "runtime/attention/metrics.hpp"

namespace flashspan::api {

[[nodiscard]] const std::shared_ptr<attention::Metrics>& process_metrics();

}  // namespace flashspan::api
