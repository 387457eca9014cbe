// own_folder.hpp -- where this library stands.
#pragma once

#include <filesystem>

namespace flashspan::api {

/// Folder of the shared object or executable that this code is part of; empty if the loader does not know.
[[nodiscard]] std::filesystem::path own_folder();

}  // namespace flashspan::api
