// cache.cpp -- `flashspan cache`: list, show, verify and prune the compiled kernels on disk.
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flashspan/inspect.hpp"
#include "tools/flashspan/commands/commands.hpp"
#include "tools/flashspan/commands/options.hpp"

namespace flashspan::tool {
namespace {

struct CacheOptions {
  std::optional<std::string> cache_dir;
  std::string key, max_bytes, older_than;
  bool json = false;
};

std::string time_text(std::int64_t unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  std::array<char, 32> text{};
  if (::localtime_r(&seconds, &parts) == nullptr) return "?";
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &parts);
  return text.data();
}

/// The metadata of an entry is JSON; a damaged one's may be anything.
Json metadata_of(const CacheEntry& entry) {
  Json metadata = Json::parse(entry.metadata, nullptr, false);
  return metadata.is_discarded() ? Json(entry.metadata) : metadata;
}

Json report_of(const CacheEntry& entry) {
  return {{"key", entry.key},
          {"spec", entry.spec},
          {"bytes", entry.bytes},
          {"last_used_unix_seconds", entry.last_used_unix_seconds},
          {"valid", entry.valid},
          {"damage", entry.damage},
          {"metadata", metadata_of(entry)}};
}

Json report_of(const CacheOptions& options, const std::vector<CacheEntry>& entries) {
  Json report{{"folder", cache_directory(options.cache_dir)}, {"entries", Json::array()}};
  for (const CacheEntry& entry : entries) report["entries"].push_back(report_of(entry));
  return report;
}

void print_entries(const std::vector<CacheEntry>& entries) {
  Table table({"key", "size", "last used", "state", "kernel"});
  for (const CacheEntry& entry : entries) {
    table.add({entry.key, bytes_text(entry.bytes), time_text(entry.last_used_unix_seconds),
               entry.valid ? "good" : "damaged", entry.valid ? entry.spec : entry.damage});
  }
  table.print();
}

void print_total(const char* verb, const CacheOptions& options, const std::vector<CacheEntry>& entries) {
  std::int64_t bytes = 0;
  for (const CacheEntry& entry : entries) bytes += entry.bytes;
  std::printf("%s %zu entries, %s, in %s\n", verb, entries.size(), bytes_text(bytes).c_str(),
              cache_directory(options.cache_dir).c_str());
}

ExitCode run_list(const CacheOptions& options) {
  const auto entries = list_cache(options.cache_dir);
  if (!entries) return report_error(entries.error(), options.json);
  if (options.json) {
    print_json(report_of(options, *entries));
    return ExitCode::ok;
  }
  if (!entries->empty()) print_entries(*entries);
  print_total("found", options, *entries);
  return ExitCode::ok;
}

ExitCode run_show(const CacheOptions& options) {
  const auto entries = list_cache(options.cache_dir);
  if (!entries) return report_error(entries.error(), options.json);
  std::vector<CacheEntry> found;
  std::copy_if(entries->begin(), entries->end(), std::back_inserter(found),
               [&](const CacheEntry& entry) { return entry.key.starts_with(options.key); });
  if (found.size() != 1) {
    return report_error(
        {ErrorCode::bad_argument, "KEY", options.key,
         "the start of exactly one key (" + std::to_string(found.size()) + " match; see flashspan cache ls)", ""},
        options.json);
  }
  const CacheEntry& entry = found.front();
  if (options.json) {
    print_json(report_of(entry));
    return ExitCode::ok;
  }
  print_entries(found);
  std::printf("%s\n", metadata_of(entry).dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  return ExitCode::ok;
}

ExitCode run_verify(const CacheOptions& options) {
  const auto entries = list_cache(options.cache_dir);
  if (!entries) return report_error(entries.error(), options.json);
  std::vector<CacheEntry> damaged;
  std::copy_if(entries->begin(), entries->end(), std::back_inserter(damaged),
               [](const CacheEntry& entry) { return !entry.valid; });
  if (options.json) {
    Json report = report_of(options, damaged);
    report["checked"] = entries->size();
    report["damaged"] = damaged.size();
    print_json(report);
  } else {
    if (!damaged.empty()) print_entries(damaged);
    print_total("checked", options, *entries);
  }
  if (damaged.empty()) return ExitCode::ok;
  return report_error({ErrorCode::bad_argument, "cache", std::to_string(damaged.size()) + " damaged entries",
                       "whole entries; damaged ones are rebuilt when next used", ""},
                      false);
}

ExitCode run_prune(const CacheOptions& options) {
  std::optional<std::int64_t> max_bytes, older_than;
  if (options.max_bytes.empty() && options.older_than.empty()) {
    return report_error({ErrorCode::bad_argument, "prune", "no limit", "--max-bytes or --older-than", ""},
                        options.json);
  }
  if (!options.max_bytes.empty()) {
    const auto bytes = byte_count("--max-bytes", options.max_bytes);
    if (!bytes) return report_error(bytes.error(), options.json);
    max_bytes = *bytes;
  }
  if (!options.older_than.empty()) {
    const auto seconds = second_count("--older-than", options.older_than);
    if (!seconds) return report_error(seconds.error(), options.json);
    older_than = *seconds;
  }
  const auto removed = prune_cache(options.cache_dir, max_bytes, older_than);
  if (!removed) return report_error(removed.error(), options.json);
  if (options.json) {
    print_json(report_of(options, *removed));
    return ExitCode::ok;
  }
  if (!removed->empty()) print_entries(*removed);
  print_total("removed", options, *removed);
  return ExitCode::ok;
}

}  // namespace

void add_cache(CLI::App& application, ChosenCommand& chosen) {
  CLI::App* command = application.add_subcommand("cache", "The compiled kernels on disk");
  command->require_subcommand(1);
  auto options = std::make_shared<CacheOptions>();
  const auto add = [&](const char* name, const char* meaning, ExitCode (*run)(const CacheOptions&)) {
    CLI::App* action = command->add_subcommand(name, meaning);
    add_cache_dir_option(*action, options->cache_dir);
    add_json_option(*action, options->json);
    action->callback([options, run, &chosen] { chosen = [options, run] { return run(*options); }; });
    return action;
  };
  add("ls", "List the entries", run_list);
  add("show", "All that is known of one entry", run_show)
      ->add_option("KEY", options->key, "Key, or the start of one")
      ->required();
  add("verify", "Check every entry's length and hash; exit code 2 if one is damaged", run_verify);
  CLI::App* prune = add("prune", "Remove entries, the longest unused first", run_prune);
  prune->add_option("--max-bytes", options->max_bytes, "Keep at most this much, e.g. 512M")->type_name("SIZE");
  prune->add_option("--older-than", options->older_than, "Remove what was last used before, e.g. 30d")
      ->type_name("TIME");
}

}  // namespace flashspan::tool
