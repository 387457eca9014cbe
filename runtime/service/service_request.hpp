// service_request.hpp -- what a client of the compile service says, as JSON. Specs, never code: the server writes every
// source that it compiles, from a spec that check_spec() has passed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "flashspan/core/error.hpp"
#include "runtime/attention/remote_compiler.hpp"

namespace flashspan::service {

/// Raised whenever a request or an answer changes its meaning; part of every path.
inline constexpr const char* compile_path = "/v1/compile";
inline constexpr const char* prefetch_path = "/v1/prefetch";
inline constexpr const char* status_path = "/v1/status";
inline constexpr const char* metrics_path = "/metrics";
inline constexpr std::size_t most_prefetched = 4096;  ///< kernels in one request

/// A request for one kernel that its sender waits for.
struct CompileRequest {
  attention::RemoteRequest wanted;
  double time_out_seconds = 0;  ///< after which it waits no longer
};

[[nodiscard]] std::string to_text(const CompileRequest& request);
[[nodiscard]] std::string to_text(const std::vector<attention::RemoteRequest>& prefetched);

/// Error: bad_argument, unsupported: as check_spec() and for a text of another form.
[[nodiscard]] Result<CompileRequest> compile_request_from_text(std::string_view text);
/// A kernel whose part is at fault is an error in its place.
[[nodiscard]] Result<std::vector<Result<attention::RemoteRequest>>> prefetch_from_text(std::string_view text);

}  // namespace flashspan::service
