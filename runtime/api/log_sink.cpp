// log_sink.cpp -- levels to spdlog's, lines to its logger.
#include "runtime/api/log_sink.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <string_view>

namespace flashspan::api {

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::optional<spdlog::level::level_enum> level_from_string(std::string_view text) {
  if (text == "off") return spdlog::level::off;
  if (text == "debug") return to_spdlog(LogLevel::debug);
  if (text == "info") return to_spdlog(LogLevel::info);
  if (text == "warning") return to_spdlog(LogLevel::warning);
  if (text == "error") return to_spdlog(LogLevel::error);
  return std::nullopt;
}

}  // namespace

LogSink standard_log(const std::optional<std::string>& level) {
  // Not registered with spdlog: its registry belongs to the application.
  const auto logger = std::make_shared<spdlog::logger>("flashspan", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  const auto known = level_from_string(level.value_or("warning"));
  logger->set_level(known.value_or(spdlog::level::warn));
  if (!known) {
    logger->warn("FLASHSPAN_LOG: got {}; takes debug, info, warning, error or off; using warning", *level);
  }
  return [logger](LogLevel line_level, std::string_view line) { logger->log(to_spdlog(line_level), "{}", line); };
}

}  // namespace flashspan::api
