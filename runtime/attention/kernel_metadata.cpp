// kernel_metadata.cpp -- KernelMetadata to JSON and back.
#include "runtime/attention/kernel_metadata.hpp"

#include <nlohmann/json.hpp>

namespace flashspan::attention {

namespace {

nlohmann::json to_json(const backend::EntryReport& entry) {
  return {{"name", entry.name},
          {"registers", entry.registers},
          {"shared_bytes", entry.shared_bytes},
          {"spill_bytes", entry.spill_bytes},
          {"stack_bytes", entry.stack_bytes}};
}

backend::EntryReport entry_from_json(const nlohmann::json& json) {
  backend::EntryReport entry;
  entry.name = json.at("name").get<std::string>();
  entry.registers = json.at("registers").get<int>();
  entry.shared_bytes = json.at("shared_bytes").get<std::int64_t>();
  entry.spill_bytes = json.at("spill_bytes").get<std::int64_t>();
  entry.stack_bytes = json.at("stack_bytes").get<std::int64_t>();
  return entry;
}

}  // namespace

std::string to_text(const KernelMetadata& metadata) {
  nlohmann::json entries = nlohmann::json::array();
  for (const backend::EntryReport& entry : metadata.report.entries) entries.push_back(to_json(entry));
  const nlohmann::json json{{"spec", metadata.spec},
                            {"summary", metadata.summary},
                            {"target", metadata.target},
                            {"compiler", metadata.compiler},
                            {"options", metadata.options},
                            {"alias", metadata.alias},
                            {"report", {{"ms", metadata.report.milliseconds}, {"entries", entries}}},
                            {"created", metadata.created_unix_seconds},
                            {"does_not_fit", metadata.does_not_fit}};
  // A user's text may hold bytes that are not UTF-8; they are replaced rather than refused.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<KernelMetadata> metadata_from_text(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    KernelMetadata metadata;
    metadata.spec = json.at("spec").get<std::string>();
    metadata.summary = json.at("summary").get<std::string>();
    metadata.target = json.at("target").get<std::string>();
    metadata.compiler = json.at("compiler").get<std::string>();
    metadata.options = json.at("options").get<std::vector<std::string>>();
    metadata.report.milliseconds = json.at("report").at("ms").get<double>();
    for (const auto& entry : json.at("report").at("entries")) {
      metadata.report.entries.push_back(entry_from_json(entry));
    }
    metadata.created_unix_seconds = json.at("created").get<std::int64_t>();
    metadata.alias = json.value("alias", std::string());
    metadata.does_not_fit = json.value("does_not_fit", std::string());
    return metadata;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace flashspan::attention
