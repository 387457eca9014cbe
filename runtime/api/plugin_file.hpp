// plugin_file.hpp -- finds and opens shared objects that come with the library.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace flashspan::api {

/// Files that may be the plug-in of this file name, in the order they are tried: `chosen` alone if it is set; else
/// beside this library or executable, in the lib folder next to it, along the loader's path, and where it was to be
/// installed.
[[nodiscard]] std::vector<std::filesystem::path> plugin_candidates(const std::string& file_name,
                                                                   const std::optional<std::string>& chosen);

/// The symbol of a plug-in, which stays open for the rest of the process, with its own symbols out of sight; or null
/// with the reason in `why`.
[[nodiscard]] void* open_plugin(const std::filesystem::path& file, const char* symbol, std::string& why);

}  // namespace flashspan::api
