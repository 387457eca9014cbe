// source_dump.hpp -- keeps the source of a kernel that did not compile, so that its user can send or rerun it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "codegen/kernel/source_text.hpp"

namespace flashspan::attention {

/// Writes the flattened text to `<name>.cu` or `<name>.ll` in the first of `directories` that takes it.
/// Returns the path, or nothing if none did.
[[nodiscard]] std::optional<std::filesystem::path> dump_source(const kernel::SourceText& source,
                                                               const std::string& name,
                                                               const std::vector<std::filesystem::path>& directories);

}  // namespace flashspan::attention
