// ptxas_report.hpp -- what ptxas (-v) says about each kernel, read from the compile log.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/backend/backend.hpp"

namespace flashspan::cuda {

struct PtxasReport {
  std::vector<backend::EntryReport> entries;  ///< sorted by name
  std::string warnings;  ///< the log without the lines that `entries` holds: empty if there was nothing to say
};

[[nodiscard]] PtxasReport parse_ptxas_report(std::string_view log);

}  // namespace flashspan::cuda
