// report.hpp -- what every command shares in talking to people and programs: exit codes, errors, tables, progress,
// JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flashspan/core/error.hpp"
#include "reports/json.hpp"

namespace flashspan::tool {

using reports::Json;

/// The codes that scripts may rely on.
enum class ExitCode : int { ok = 0, bad_input = 2, no_device = 3, compile_failed = 4 };

/// no_device for devices and components that are not there, compile_failed for refused kernels, else bad_input.
[[nodiscard]] ExitCode exit_code_of(ErrorCode code);
/// Prints "flashspan: message" to standard error (and {"error": ...} to standard output if `json`).
ExitCode report_error(const Error& error, bool json);
using reports::to_json;
[[nodiscard]] Json to_json(const Error& error);
void print_json(const Json& json);

/// "1.50 KiB".
[[nodiscard]] std::string bytes_text(std::int64_t bytes);
/// `value` with `digits` after the point.
[[nodiscard]] std::string fixed(double value, int digits);
/// `value` with three significant digits.
[[nodiscard]] std::string short_number(double value);

/// Columns as wide as their widest cell; the first column is left-aligned, the others right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// Progress on standard error: one line rewritten in place on a terminal, plain lines in a pipe, nothing if `quiet`.
class Progress {
 public:
  Progress(int total, bool quiet);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  void step(const std::string& what);

 private:
  int total_, done_ = 0;
  bool quiet_, terminal_;
};

}  // namespace flashspan::tool
