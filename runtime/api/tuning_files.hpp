// tuning_files.hpp -- where results of tuning are kept: a file of their own, the layers of the cache, bundles.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cache/entry_file.hpp"
#include "cache/kernel_key.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/log.hpp"
#include "flashspan/core/tuning_record.hpp"
#include "runtime/api/settings.hpp"

namespace flashspan::api {

inline constexpr const char* tuning_file_name = "tuning.jsonl";

/// `chosen` overrules FLASHSPAN_TUNING_FILE, which overrules tuning.jsonl in the cache's folder; an empty one means
/// none.
[[nodiscard]] std::optional<std::filesystem::path> tuning_file(const Settings& settings,
                                                               const std::optional<std::string>& chosen,
                                                               const std::optional<std::filesystem::path>& cache);

/// The records of that file and, if it is the cache's own, of tuning.jsonl in the folders and of the bundles among
/// `layers`. What cannot be read is a warning: tuned tiles are there for speed.
[[nodiscard]] std::vector<TuningRecord> read_tunings(const Settings& settings, const std::optional<std::string>& chosen,
                                                     const std::optional<std::filesystem::path>& cache,
                                                     const std::vector<std::filesystem::path>& layers,
                                                     const LogSink& log);

/// Metadata of the entry that a tuning file is in a bundle.
inline constexpr const char* tuning_metadata = R"({"content": "tuning file"})";

/// A tuning file as an entry of a bundle, which shares its alias with all of them.
[[nodiscard]] cache::Entry tuning_entry(const std::string& text);
[[nodiscard]] cache::KernelKey tuning_key(const std::string& text);
[[nodiscard]] const cache::KernelKey& tuning_alias();
/// The text of such an entry; nothing for another.
[[nodiscard]] std::optional<std::string> tuning_text(const cache::Entry& entry);

}  // namespace flashspan::api
