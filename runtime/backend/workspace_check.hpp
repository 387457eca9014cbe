// workspace_check.hpp -- whether the caller's workspace is as large as a call needs.
#pragma once

#include <cstdint>
#include <string>

#include "flashspan/core/error.hpp"

namespace flashspan::backend {

/// Error: workspace_too_small.
[[nodiscard]] inline Result<void> check_workspace(const void* workspace, std::int64_t got_bytes,
                                                  std::int64_t takes_bytes) {
  if (takes_bytes == 0 || (workspace != nullptr && got_bytes >= takes_bytes)) return {};
  return Error{ErrorCode::workspace_too_small, "workspace",
               workspace == nullptr ? "none" : std::to_string(got_bytes) + " bytes",
               "at least " + std::to_string(takes_bytes) + " bytes on the device (see workspace_bytes())", ""};
}

}  // namespace flashspan::backend
