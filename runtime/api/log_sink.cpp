// log_sink.cpp -- levels and sinks to spdlog's, lines to its logger.
#include "runtime/api/log_sink.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
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

/// Null, with the reason in `why`, if a file cannot be opened.
spdlog::sink_ptr open_sink(const std::string& name, std::string& why) {
  if (name.empty() || name == "stderr") return std::make_shared<spdlog::sinks::stderr_sink_mt>();
  if (name == "stdout") return std::make_shared<spdlog::sinks::stdout_sink_mt>();
  try {
    return std::make_shared<spdlog::sinks::basic_file_sink_mt>(name);
  } catch (const spdlog::spdlog_ex& failure) {
    why = failure.what();
    return nullptr;
  }
}

}  // namespace

LogSink standard_log(const std::optional<std::string>& setting) {
  const std::string text = setting.value_or("warning");
  const std::size_t colon = text.find(':');
  const std::string level = text.substr(0, colon);
  std::string why;
  spdlog::sink_ptr sink = open_sink(colon == std::string::npos ? "" : text.substr(colon + 1), why);
  if (sink == nullptr) sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  // Not registered with spdlog: its registry belongs to the application.
  const auto logger = std::make_shared<spdlog::logger>("flashspan", std::move(sink));
  logger->set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%P] [%n] [%l] %v");
  logger->flush_on(spdlog::level::debug);  // a process may be killed, and has few lines
  const auto known = level_from_string(level);
  logger->set_level(known.value_or(spdlog::level::warn));
  if (!known) {
    logger->warn("FLASHSPAN_LOG: got {}; takes debug, info, warning, error or off; using warning", level);
  }
  if (!why.empty()) logger->warn("FLASHSPAN_LOG: {}; using standard error", why);
  return [logger](LogLevel line_level, std::string_view line) { logger->log(to_spdlog(line_level), "{}", line); };
}

}  // namespace flashspan::api
