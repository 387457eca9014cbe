#include "tools/flashspan/entry_report.hpp"

#include <array>
#include <cstdint>
#include <ctime>
#include <string>

namespace flashspan::tool {

namespace {

std::string time_text(std::int64_t unix_seconds) {
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

}  // namespace flashspan::tool
