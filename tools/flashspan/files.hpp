// files.hpp -- whole files: read into memory, and written so that a reader sees the old or the new one, never a part.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "flashspan/core/error.hpp"

namespace flashspan::tool {

/// Error: io_error that names `argument`, the path and the system's reason.
[[nodiscard]] Result<std::vector<std::byte>> read_file(const std::string& path, const std::string& argument);

/// Appends bytes to the file being written.
using ByteSink = std::function<void(const void* bytes, std::size_t count)>;

/// Calls `write` with a sink for a private file beside `path`, flushes it to the disk, and renames it to `path`.
/// Error: io_error; the private file is removed then.
[[nodiscard]] Result<void> write_file_atomically(const std::string& path, const std::string& argument,
                                                 const std::function<void(const ByteSink&)>& write);

}  // namespace flashspan::tool
