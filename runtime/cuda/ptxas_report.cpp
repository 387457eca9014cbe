#include "runtime/cuda/ptxas_report.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

namespace flashspan::cuda {
namespace {

/// The number that stands directly before `words`, as in "Used 24 registers": nothing if `words` does not occur.
std::optional<std::int64_t> number_before(std::string_view line, std::string_view words) {
  const std::size_t end = line.find(words);
  if (end == std::string_view::npos) return std::nullopt;
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  std::int64_t number = 0;
  if (std::from_chars(line.data() + begin, line.data() + end, number).ec != std::errc{}) return std::nullopt;
  return number;
}

/// The text between the first pair of quotes.
std::string quoted(std::string_view line) {
  const std::size_t begin = line.find('\'');
  const std::size_t end = begin == std::string_view::npos ? begin : line.find('\'', begin + 1);
  return end == std::string_view::npos ? std::string() : std::string(line.substr(begin + 1, end - begin - 1));
}

/// Lines of the report are "ptxas info    : ..." and, for a function's properties, "ptxas         .     ...".
/// Advisories look like the former, but carry a number in brackets ("(C7520)").
bool is_report_line(std::string_view line) {
  const auto has = [line](std::string_view words) { return line.find(words) != std::string_view::npos; };
  if (line.starts_with("ptxas info")) return !has(": (C");
  return line.starts_with("ptxas  ") && has("stack frame");
}

void read_line(std::string_view line, backend::EntryReport& entry) {
  entry.registers = static_cast<int>(number_before(line, " registers").value_or(entry.registers));
  entry.shared_bytes = number_before(line, " bytes smem").value_or(entry.shared_bytes);
  // A device function that was not inlined has a "Function properties" of its own below its kernel: add it up.
  entry.stack_bytes += number_before(line, " bytes stack frame").value_or(0);
  entry.spill_bytes += number_before(line, " bytes spill stores").value_or(0);
  entry.spill_bytes += number_before(line, " bytes spill loads").value_or(0);
}

}  // namespace

PtxasReport parse_ptxas_report(std::string_view log) {
  PtxasReport report;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    if (!is_report_line(line)) {
      report.warnings += std::string(line) + "\n";
    } else if (line.find("Compiling entry function") != std::string_view::npos) {
      backend::EntryReport entry;
      entry.name = quoted(line);
      report.entries.push_back(entry);
    } else if (!report.entries.empty()) {
      read_line(line, report.entries.back());
    }
  }
  const auto first_text = report.warnings.find_first_not_of('\n');
  report.warnings.erase(0, first_text == std::string::npos ? report.warnings.size() : first_text);
  report.warnings.erase(report.warnings.find_last_not_of('\n') + 1);
  std::sort(report.entries.begin(), report.entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return report;
}

}  // namespace flashspan::cuda
