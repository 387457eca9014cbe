#include "runtime/api/tuning_files.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "cache/bundle_file.hpp"
#include "cache/shared_file.hpp"
#include "cache/whole_file.hpp"
#include "flashspan/tuning.hpp"
#include "runtime/attention/tuning_table.hpp"

namespace flashspan {

namespace {

Error cannot(const char* what, const std::string& path, int error) {
  return Error{ErrorCode::io_error, "tuning file", path + ": " + cache::error_text(error),
               std::string("a file that can be ") + what, ""};
}

/// Nothing if there is no such file.
Result<std::optional<std::string>> read_text(const std::filesystem::path& path) {
  cache::FileContents contents;
  constexpr std::int64_t never = -1;
  const int error = cache::read_file(path, cache::largest_shared_file_bytes, never, contents);
  if (error == ENOENT || error == ENOTDIR) return std::optional<std::string>();
  if (error != 0) return cannot("read", path.string(), error);
  return std::optional(std::string(reinterpret_cast<const char*>(contents.bytes.data()), contents.bytes.size()));
}

void append(std::vector<TuningRecord>& records, std::vector<TuningRecord> more) {
  records.insert(records.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

void append_file(std::vector<TuningRecord>& records, const std::filesystem::path& path, const LogSink& log) {
  const auto text = read_text(path);
  if (!text) return log(LogLevel::warning, text.error().message());
  if (*text) append(records, attention::records_from_text(**text));
}

/// A bundle that cannot be opened has been warned of where the layers were opened.
void append_bundle(std::vector<TuningRecord>& records, const std::filesystem::path& path) {
  const auto bundle = cache::BundleFile::open(path);
  if (!bundle) return;
  for (const cache::BundleFile::Item& item : bundle->items()) {
    if (item.alias != api::tuning_alias()) continue;
    std::string why;
    const auto entry = bundle->read(item, &why);
    if (!entry) continue;
    if (const auto text = api::tuning_text(*entry)) append(records, attention::records_from_text(*text));
  }
}

}  // namespace

namespace api {

std::optional<std::filesystem::path> tuning_file(const Settings& settings, const std::optional<std::string>& chosen,
                                                 const std::optional<std::filesystem::path>& cache) {
  const std::optional<std::string>& given = chosen ? chosen : settings.tuning_file;
  if (given && given->empty()) return std::nullopt;
  if (given) return *given;
  if (cache) return *cache / tuning_file_name;
  return std::nullopt;
}

std::vector<TuningRecord> read_tunings(const Settings& settings, const std::optional<std::string>& chosen,
                                       const std::optional<std::filesystem::path>& cache,
                                       const std::vector<std::filesystem::path>& layers, const LogSink& log) {
  std::vector<TuningRecord> records;
  if (const auto file = tuning_file(settings, chosen, cache)) append_file(records, *file, log);
  // Who names a file wants that one alone: ranks that read one table agree.
  if (chosen || settings.tuning_file) return records;
  for (const std::filesystem::path& layer : layers) {
    std::error_code failed;
    if (std::filesystem::is_directory(layer, failed)) {
      append_file(records, layer / tuning_file_name, log);
    } else {
      append_bundle(records, layer);
    }
  }
  return records;
}

cache::Entry tuning_entry(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {tuning_metadata, {bytes.begin(), bytes.end()}};
}

cache::KernelKey tuning_key(const std::string& text) {
  return cache::KernelKey::of(std::array<std::string_view, 2>{"tuning file", text});
}

const cache::KernelKey& tuning_alias() {
  static const cache::KernelKey alias = cache::KernelKey::of(std::array<std::string_view, 1>{"any tuning file"});
  return alias;
}

std::optional<std::string> tuning_text(const cache::Entry& entry) {
  if (entry.metadata != tuning_metadata) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(entry.artifact.data()), entry.artifact.size());
}

}  // namespace api

std::string kernel_summary(const std::string& spec) {
  const auto read = kernel::KernelSpec::from_text(spec);
  return read ? read->summary() : spec;
}

std::optional<std::string> tuning_file(const std::optional<std::string>& cache_dir) {
  const api::Settings& settings = api::settings();
  const auto path = api::tuning_file(settings, std::nullopt, api::cache_folder(settings, cache_dir));
  if (!path) return std::nullopt;
  return path->string();
}

Result<std::vector<TuningRecord>> read_tuning_file(const std::string& path) {
  const auto text = read_text(path);
  if (!text) return text.error();
  if (!*text) return cannot("read", path, ENOENT);
  return attention::records_from_text(**text);
}

Result<void> merge_tuning_records(const std::string& path, const std::vector<TuningRecord>& records) {
  const int error =
      cache::change_file(path, [&records](const std::string& text) { return attention::merged_text(text, records); });
  if (error != 0) return cannot("written", path, error);
  return {};
}

}  // namespace flashspan
