#include "tools/flashspan/entry_report.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <iterator>
#include <string>
#include <vector>

namespace flashspan::tool {

namespace {

std::string time_text(std::int64_t unix_seconds) {
  if (unix_seconds == 0) return "-";
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  std::array<char, 32> text{};
  if (::localtime_r(&seconds, &parts) == nullptr) return "?";
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &parts);
  return text.data();
}

}  // namespace

Json metadata_of(const CacheEntry& entry) {
  Json metadata = Json::parse(entry.metadata, nullptr, false);
  return metadata.is_discarded() ? Json(entry.metadata) : metadata;
}

Json to_json(const CacheEntry& entry) {
  return {{"key", entry.key},
          {"spec", entry.spec},
          {"bytes", entry.bytes},
          {"last_used_unix_seconds", entry.last_used_unix_seconds},
          {"valid", entry.valid},
          {"damage", entry.damage},
          {"metadata", metadata_of(entry)}};
}

void print_entries(const std::vector<CacheEntry>& entries) {
  Table table({"key", "size", "last used", "state", "kernel"});
  for (const CacheEntry& entry : entries) {
    table.add({entry.key, bytes_text(entry.bytes), time_text(entry.last_used_unix_seconds),
               entry.valid ? "good" : "damaged", entry.valid ? entry.spec : entry.damage});
  }
  table.print();
}

std::vector<CacheEntry> damaged_among(const std::vector<CacheEntry>& entries) {
  std::vector<CacheEntry> damaged;
  std::ranges::copy_if(entries, std::back_inserter(damaged), [](const CacheEntry& entry) { return !entry.valid; });
  return damaged;
}

ExitCode report_damaged(const char* argument, const std::vector<CacheEntry>& entries, const char* takes) {
  const std::size_t damaged = damaged_among(entries).size();
  if (damaged == 0) return ExitCode::ok;
  return report_error({ErrorCode::bad_argument, argument, std::to_string(damaged) + " damaged entries", takes, ""},
                      false);
}

}  // namespace flashspan::tool
