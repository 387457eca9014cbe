// log_sink.hpp -- the log sink that is used when the caller brings none: spdlog, to standard error or into a file.
#pragma once

#include <optional>
#include <string>

#include "flashspan/core/log.hpp"

namespace flashspan::api {

/// `setting`: a level, and a sink behind a colon: "info", "debug:stdout", "info:/var/log/flashspan.log".
/// Lines of the level and above: "debug", "info", "warning" (also if none is given), "error"; "off" for none. Another
/// word counts as "warning", and the first line says so. The sink: "stderr" (also if none is given), "stdout", or a
/// file to which lines are appended, whole, so that processes can share it; where that cannot be opened, standard
/// error, and the first line says so.
[[nodiscard]] LogSink standard_log(const std::optional<std::string>& setting);

}  // namespace flashspan::api
