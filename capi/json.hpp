// json.hpp -- what the library tells about itself, as JSON text.
#pragma once

#include <string>
#include <vector>

#include "flashspan/attention.hpp"
#include "flashspan/inspect.hpp"
#include "flashspan/tuning.hpp"

namespace flashspan::capi {

[[nodiscard]] std::string json_of(const KernelRecord& record);
[[nodiscard]] std::string json_of(const Explanation& explanation);
[[nodiscard]] std::string json_of(const std::vector<Finding>& findings);
[[nodiscard]] std::string json_of(const TunedCandidate& candidate);
[[nodiscard]] std::string json_of(const TuneReport& report);

}  // namespace flashspan::capi
