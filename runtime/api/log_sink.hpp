// log_sink.hpp -- the log sink that is used when the caller brings none: spdlog to standard error.
#pragma once

#include <optional>
#include <string>

#include "flashspan/core/log.hpp"

namespace flashspan::api {

/// Lines of `level` and above: "debug", "info", "warning" (also if none is given), "error"; "off" for none. Another
/// word counts as "warning", and the first line says so.
[[nodiscard]] LogSink standard_log(const std::optional<std::string>& level);

}  // namespace flashspan::api
