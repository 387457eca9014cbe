// plugin_file.hpp -- finds and opens shared objects that come with the library.
#pragma once

#include <optional>
#include <string>

#include "flashspan/core/error.hpp"

namespace flashspan::api {

struct Plugin {
  const char* what;  ///< for the error
  const char* file_name;
  const char* entry;          ///< symbol of a function that makes the object: void* (*)(int abi)
  int abi;                    ///< what the entry is called with; it gives null if it has another
  const char* other_version;  ///< what else that may mean, for the error
  const char* remedy;
};

/// What a plug-in's entry makes. Files are tried in this order: `chosen` alone if it is set; else beside this library
/// or executable, in the lib folder next to it, along the loader's path, and where it was to be installed. One that
/// opens stays open for the rest of the process, with its own symbols out of sight. Error: missing_component, with the
/// reason of every file in `detail`.
[[nodiscard]] Result<void*> make_from_plugin(const Plugin& plugin, const std::optional<std::string>& chosen);

}  // namespace flashspan::api
