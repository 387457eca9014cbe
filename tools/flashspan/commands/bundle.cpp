// bundle.cpp -- `flashspan bundle`: kernels compiled ahead of time into one file, and what is done with such files.
#include "flashspan/bundle.hpp"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "flashspan/tuning.hpp"
#include "tools/flashspan/commands/commands.hpp"
#include "tools/flashspan/commands/options.hpp"
#include "tools/flashspan/entry_report.hpp"
#include "tools/flashspan/manifest.hpp"

namespace flashspan::tool {
namespace {

struct BundleOptions {
  std::string manifest, arch, output, bundle, folder;
  std::vector<std::string> bundles, tunings;
  int threads = 0;
  bool json = false;
};

/// A cache of this command's own, removed with it: the bundle holds what the manifest says, and nothing else.
class PrivateCache {
 public:
  static Result<PrivateCache> make() {
    std::string name = (std::filesystem::temp_directory_path() / "flashspan-bundle-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      return Error{ErrorCode::io_error, "temporary folder", name, "a folder that can be made", ""};
    }
    return PrivateCache(name);
  }
  PrivateCache(PrivateCache&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  PrivateCache& operator=(PrivateCache&&) = delete;
  ~PrivateCache() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  explicit PrivateCache(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

Json report_of(const std::vector<CacheEntry>& entries) {
  Json report{{"entries", Json::array()}};
  for (const CacheEntry& entry : entries) report["entries"].push_back(to_json(entry));
  return report;
}

void print_report(const char* verb, const BundleOptions& options, const std::vector<CacheEntry>& entries) {
  if (options.json) {
    print_json(report_of(entries));
    return;
  }
  if (!entries.empty()) print_entries(entries);
  std::printf("%s %zu entries\n", verb, entries.size() - damaged_among(entries).size());
}

/// Prints what was done with the entries. Damaged ones among them are left out, which is an error.
ExitCode report_moved(const BundleOptions& options, const std::vector<CacheEntry>& entries) {
  print_report("wrote", options, entries);
  return report_damaged("BUNDLE", entries, "whole entries; the others were taken");
}

/// The requests of a manifest's kernels, which compile into `cache`, each with those of `tunings` that are about it.
/// Error: bad_argument, for what no call takes.
Result<std::vector<CompileRequest>> requests_of(const std::vector<ManifestKernel>& kernels,
                                                const std::vector<Arch>& archs,
                                                const std::vector<TuningRecord>& tunings, const std::string& cache) {
  std::vector<CompileRequest> requests;
  for (const ManifestKernel& kernel : kernels) {
    CompileRequest& request = requests.emplace_back(kernel.request);
    request.archs = archs;
    request.cache_dir = cache;
    request.cache_path = "";
    auto found = tunings_for(request, tunings);
    if (!found) return found.error();
    request.tunings = *std::move(found);
  }
  return requests;
}

/// Compiles the kernels of all requests; `kernels` are where they are from. Error: the first failure, after all have
/// been tried.
Result<void> compile_requests(const std::vector<CompileRequest>& requests, const std::vector<ManifestKernel>& kernels,
                              const BundleOptions& options) {
  int total = 0;
  for (const CompileRequest& request : requests) {
    const auto count = count_kernels(request);
    if (!count) return count.error();
    total += *count;
  }
  Progress progress(total, options.json);
  Result<void> first;
  const auto compiled = compile_ahead(requests, options.threads, [&](std::size_t request, const CompiledKernel& done) {
    progress.step(kernels[request].label + ", " + to_string(done.arch) + " " + to_string(done.direction) + ": " +
                  (done.error ? to_string(done.error->code) : done.record.outcome));
    if (done.error && first) first = *done.error;
  });
  if (!compiled) return compiled.error();
  return first;
}

Result<std::vector<TuningRecord>> read_tunings(const std::vector<std::string>& files) {
  std::vector<TuningRecord> records;
  for (const std::string& file : files) {
    const auto read = read_tuning_file(file);
    if (!read) return read.error();
    records.insert(records.end(), read->begin(), read->end());
  }
  return records;
}

/// Into the cache's tuning file, from where it goes into the bundle, what was measured of kernels that are in it: with
/// another's result, a call would look for a kernel that the bundle has not. Error: bad_argument, if that is nothing
/// of the `given` results.
Result<void> keep_tunings(const std::vector<CompileRequest>& requests, std::size_t given, const std::string& cache) {
  std::vector<TuningRecord> kept;
  for (const CompileRequest& request : requests) {
    kept.insert(kept.end(), request.tunings.begin(), request.tunings.end());
  }
  if (kept.empty()) {
    return Error{ErrorCode::bad_argument, "--tuning", std::to_string(given) + " results of other kernels",
                 "one at least of a kernel in the manifest, for an architecture of --arch", ""};
  }
  return merge_tuning_records((std::filesystem::path(cache) / "tuning.jsonl").string(), kept);
}

ExitCode run_build(const BundleOptions& options) {
  const auto archs = arch_list(options.arch);
  if (!archs) return report_error(archs.error(), options.json);
  const auto kernels = read_manifest(options.manifest);
  if (!kernels) return report_error(kernels.error(), options.json);
  const auto tunings = read_tunings(options.tunings);
  if (!tunings) return report_error(tunings.error(), options.json);
  const auto cache = PrivateCache::make();
  if (!cache) return report_error(cache.error(), options.json);
  const auto requests = requests_of(*kernels, *archs, *tunings, cache->path());
  if (!requests) return report_error(requests.error(), options.json);
  if (!options.tunings.empty()) {
    const auto kept = keep_tunings(*requests, tunings->size(), cache->path());
    if (!kept) return report_error(kept.error(), options.json);
  }
  if (auto compiled = compile_requests(*requests, *kernels, options); !compiled) {
    return report_error(compiled.error(), options.json);
  }
  const auto written = export_cache(cache->path(), {}, options.output);
  if (!written) return report_error(written.error(), options.json);
  print_report("wrote", options, *written);
  return ExitCode::ok;
}

ExitCode run_list(const BundleOptions& options) {
  const auto entries = list_bundle(options.bundle);
  if (!entries) return report_error(entries.error(), options.json);
  print_report("found", options, *entries);
  return ExitCode::ok;
}

ExitCode run_verify(const BundleOptions& options) {
  const auto entries = list_bundle(options.bundle);
  if (!entries) return report_error(entries.error(), options.json);
  const std::vector<CacheEntry> damaged = damaged_among(*entries);
  if (options.json) {
    Json result = report_of(damaged);
    result["checked"] = entries->size();
    result["damaged"] = damaged.size();
    print_json(result);
  } else {
    if (!damaged.empty()) print_entries(damaged);
    std::printf("checked %zu entries\n", entries->size());
  }
  return report_damaged("BUNDLE", damaged, "whole entries; damaged ones are never used");
}

ExitCode run_merge(const BundleOptions& options) {
  const auto written = merge_bundles(options.bundles, options.output);
  if (!written) return report_error(written.error(), options.json);
  return report_moved(options, *written);
}

ExitCode run_export(const BundleOptions& options) {
  const auto entries = import_bundle(options.bundle, options.folder);
  if (!entries) return report_error(entries.error(), options.json);
  return report_moved(options, *entries);
}

}  // namespace

void add_bundle(CLI::App& application, ChosenCommand& chosen) {
  CLI::App* command = application.add_subcommand("bundle", "Kernels in one file, to be shipped");
  command->require_subcommand(1);
  auto options = std::make_shared<BundleOptions>();
  const auto add = [&](const char* name, const char* meaning, ExitCode (*run)(const BundleOptions&)) {
    CLI::App* action = command->add_subcommand(name, meaning);
    add_json_option(*action, options->json);
    action->callback([options, run, &chosen] { chosen = [options, run] { return run(*options); }; });
    return action;
  };
  const auto add_bundle_option = [&](CLI::App* action) {
    action->add_option("BUNDLE", options->bundle, "File to read")->required();
  };
  const auto add_output_option = [&](CLI::App* action) {
    action->add_option("-o,--output", options->output, "File to write")->required()->type_name("BUNDLE");
  };
  CLI::App* build = add("build", "Compile the kernels of a manifest; no GPU needed", run_build);
  build->add_option("MANIFEST", options->manifest, "JSON file: {\"kernels\": [{\"mask\": .., \"head_dim\": ..}, ..]}")
      ->required();
  build->add_option("--arch", options->arch, "Architectures, e.g. sm_80,sm_90a")->required()->type_name("LIST");
  build->add_option("--threads", options->threads, "Kernels compiled at a time (default: one a core)")
      ->check(CLI::Range(1, 1024));
  build
      ->add_option("--tuning", options->tunings,
                   "Tuning files: their results for these kernels are shipped, and the tiles they name compiled too")
      ->type_name("FILE");
  add_output_option(build);
  add_bundle_option(add("ls", "List the entries", run_list));
  add_bundle_option(add("verify", "Check every entry's length and hash; exit code 2 if one is damaged", run_verify));
  CLI::App* merge = add("merge", "Write the entries of several bundles into one", run_merge);
  merge->add_option("BUNDLES", options->bundles, "Files to read")->required();
  add_output_option(merge);
  CLI::App* to_folder = add("export", "Write the entries into a folder that is laid out as a cache", run_export);
  add_bundle_option(to_folder);
  to_folder->add_option("FOLDER", options->folder, "Folder to write into")->required();
}

}  // namespace flashspan::tool
