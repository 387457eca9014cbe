// cache.cpp -- `flashspan cache`: list, show, verify and prune the compiled kernels on disk.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "flashspan/bundle.hpp"
#include "flashspan/inspect.hpp"
#include "flashspan/triton.hpp"
#include "tools/flashspan/commands/commands.hpp"
#include "tools/flashspan/commands/options.hpp"
#include "tools/flashspan/entry_report.hpp"

namespace flashspan::tool {
namespace {

struct CacheOptions {
  std::optional<std::string> cache_dir;
  std::string key, max_bytes, older_than, bundle, left, right, path;
  std::optional<std::string> signature, triton_version;
  std::vector<std::string> keys;
  bool json = false;
};

Json report_of(const CacheOptions& options, const std::vector<CacheEntry>& entries) {
  Json report{{"folder", cache_directory(options.cache_dir)}, {"entries", Json::array()}};
  for (const CacheEntry& entry : entries) report["entries"].push_back(to_json(entry));
  return report;
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
    print_json(to_json(entry));
    return ExitCode::ok;
  }
  print_entries(found);
  std::printf("%s\n", metadata_of(entry).dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  return ExitCode::ok;
}

ExitCode run_verify(const CacheOptions& options) {
  const auto entries = list_cache(options.cache_dir);
  if (!entries) return report_error(entries.error(), options.json);
  const std::vector<CacheEntry> damaged = damaged_among(*entries);
  if (options.json) {
    Json report = report_of(options, damaged);
    report["checked"] = entries->size();
    report["damaged"] = damaged.size();
    print_json(report);
  } else {
    if (!damaged.empty()) print_entries(damaged);
    print_total("checked", options, *entries);
  }
  return report_damaged("cache", damaged, "whole entries; damaged ones are rebuilt when next used");
}

ExitCode run_prune(const CacheOptions& options) {
  std::optional<std::int64_t> max_bytes, older_than;
  if (options.max_bytes.empty() && options.older_than.empty()) {
    return report_error({ErrorCode::bad_argument, "prune", "no limit", "--max-size or --older-than", ""}, options.json);
  }
  if (!options.max_bytes.empty()) {
    const auto bytes = byte_count("--max-size", options.max_bytes);
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

/// Prints what was done with the entries of `argument`. Damaged ones among them are left out, which is an error.
ExitCode report_moved(const char* verb, const char* argument, const CacheOptions& options,
                      const std::vector<CacheEntry>& entries) {
  const std::vector<CacheEntry> damaged = damaged_among(entries);
  if (options.json) {
    print_json(report_of(options, entries));
  } else {
    if (!damaged.empty()) print_entries(damaged);
    std::printf("%s %zu entries\n", verb, entries.size() - damaged.size());
  }
  return report_damaged(argument, damaged, "whole entries; the others were taken");
}

ExitCode run_export(const CacheOptions& options) {
  const auto written = export_cache(options.cache_dir, options.keys, options.bundle);
  if (!written) return report_error(written.error(), options.json);
  return report_moved("wrote", "cache", options, *written);
}

ExitCode run_import(const CacheOptions& options) {
  const auto read = import_bundle(options.bundle, options.cache_dir);
  if (!read) return report_error(read.error(), options.json);
  return report_moved("imported", "BUNDLE", options, *read);
}

/// A kernel of Triton's into the cache.
ExitCode run_add(const CacheOptions& options) {
  TritonReadOptions reading;
  reading.signature = options.signature;
  reading.version = options.triton_version;
  const auto kernel = read_triton_kernel(options.path, reading);
  if (!kernel) return report_error(kernel.error(), options.json);
  const auto key = add_to_cache(*kernel, options.cache_dir);
  if (!key) return report_error(key.error(), options.json);
  Json report{{"key", *key},
              {"name", kernel->name},
              {"arch", to_string(kernel->arch)},
              {"triton", kernel->version},
              {"num_warps", kernel->num_warps},
              {"shared_bytes", kernel->shared_bytes},
              {"parameters", Json::array()}};
  std::string parameters;
  for (const TritonParameter& parameter : kernel->parameters) {
    report["parameters"].push_back({{"name", parameter.name}, {"type", parameter.type}});
    parameters += (parameters.empty() ? "" : ", ") + parameter.name + ": " + parameter.type;
  }
  if (options.json) {
    print_json(report);
  } else {
    std::printf("%s  %s(%s), %s, Triton %s\n", key->c_str(), kernel->name.c_str(), parameters.c_str(),
                to_string(kernel->arch).c_str(), kernel->version.c_str());
  }
  return ExitCode::ok;
}

/// Of a folder or a bundle.
Result<std::vector<CacheEntry>> entries_of(const std::string& path) {
  return std::filesystem::is_directory(path) ? list_cache(path) : list_bundle(path);
}

ExitCode run_diff(const CacheOptions& options) {
  const auto left = entries_of(options.left);
  if (!left) return report_error(left.error(), options.json);
  const auto right = entries_of(options.right);
  if (!right) return report_error(right.error(), options.json);
  // Equal keys are equal inputs of the compiler.
  const auto missing = [](const std::vector<CacheEntry>& entries, const std::vector<CacheEntry>& from) {
    std::vector<CacheEntry> result;
    for (const CacheEntry& entry : entries) {
      if (std::ranges::find(from, entry.key, &CacheEntry::key) == from.end()) result.push_back(entry);
    }
    return result;
  };
  Json report{{"only_left", Json::array()}, {"only_right", Json::array()}};
  for (const CacheEntry& entry : missing(*left, *right)) report["only_left"].push_back(to_json(entry));
  for (const CacheEntry& entry : missing(*right, *left)) report["only_right"].push_back(to_json(entry));
  if (options.json) {
    print_json(report);
    return ExitCode::ok;
  }
  for (const auto& [side, mark] : {std::pair{"only_left", '-'}, std::pair{"only_right", '+'}}) {
    for (const Json& entry : report[side]) {
      std::printf("%c %s  %s\n", mark, entry["key"].get<std::string>().c_str(),
                  entry["spec"].get<std::string>().c_str());
    }
  }
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
  prune->add_option("--max-size,--max-bytes", options->max_bytes, "Keep at most this much, e.g. 512M")
      ->type_name("SIZE");
  prune->add_option("--older-than,--older", options->older_than, "Remove what was last used before, e.g. 30d")
      ->type_name("TIME");
  CLI::App* to_bundle = add("export", "Write entries into a bundle, a file to be shipped", run_export);
  to_bundle->add_option("BUNDLE", options->bundle, "File to write")->required();
  to_bundle->add_option("KEY", options->keys, "Keys, or the starts of them (default: all)");
  add("import", "Copy the entries of a bundle into the cache", run_import)
      ->add_option("BUNDLE", options->bundle, "File to read")
      ->required();
  CLI::App* triton = add("add", "Put a kernel that Triton compiled into the cache", run_add);
  triton
      ->add_option("PATH", options->path,
                   "An entry of Triton's cache (its folder, .json or .cubin), or the .c of triton.tools.compile")
      ->required();
  triton->add_option("--signature", options->signature,
                     "Types of its parameters, e.g. '*fp32, i32', where no file says");
  triton->add_option("--triton-version", options->triton_version, "Where the .json does not say");
  CLI::App* diff = add("diff", "Which entries only one of two caches or bundles has", run_diff);
  diff->add_option("LEFT", options->left, "Folder or bundle; its own entries are marked -")->required();
  diff->add_option("RIGHT", options->right, "Folder or bundle; its own entries are marked +")->required();
}

}  // namespace flashspan::tool
