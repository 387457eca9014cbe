// report.cpp -- exit codes, errors, tables, progress and JSON of the commands.
#include "tools/flashspan/report.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace flashspan::tool {
namespace {

template <typename... Arguments>
std::string formatted(const char* format, Arguments... arguments) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, arguments...);
  return text.data();
}

}  // namespace

ExitCode exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::bad_argument:
    case ErrorCode::bad_expression:
    case ErrorCode::unsupported:
    case ErrorCode::workspace_too_small:
    case ErrorCode::io_error:
      return ExitCode::bad_input;
    case ErrorCode::no_device:
    case ErrorCode::missing_component:
    case ErrorCode::device_error:
      return ExitCode::no_device;
    case ErrorCode::compile_failed:
    case ErrorCode::kernel_spills:
    case ErrorCode::not_prepared:
    case ErrorCode::timed_out:
      return ExitCode::compile_failed;
  }
  return ExitCode::bad_input;
}

Json to_json(const Error& error) {
  return {{"code", to_string(error.code)},
          {"argument", error.argument},
          {"got", error.got},
          {"takes", error.takes},
          {"detail", error.detail}};
}

ExitCode report_error(const Error& error, bool json) {
  std::fprintf(stderr, "flashspan: %s\n", error.message().c_str());
  if (json) print_json({{"error", to_json(error)}});
  return exit_code_of(error.code);
}

void print_json(const Json& json) {
  // Text from outside may hold bytes that are not UTF-8; they are replaced, never thrown about.
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return formatted(unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
}

std::string fixed(double value, int digits) { return formatted("%.*f", digits, value); }

std::string short_number(double value) { return formatted("%.3g", value); }

void Table::print() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  }
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths[column] - row[column].size(), ' ');
      line += column == 0 ? row[column] + padding : "  " + padding + row[column];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    std::printf("%s\n", line.c_str());
  }
}

Progress::Progress(int total, bool quiet) : total_(total), quiet_(quiet), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (!quiet_ && terminal_) std::fprintf(stderr, "\r\033[K");
}

void Progress::step(const std::string& what) {
  ++done_;
  if (quiet_) return;
  std::fprintf(stderr, terminal_ ? "\r\033[K[%d/%d] %s" : "[%d/%d] %s\n", done_, total_, what.c_str());
  std::fflush(stderr);
}

}  // namespace flashspan::tool
