// kernel_metadata.hpp -- what is stored beside a binary in the cache: how it was made and what the compiler said.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/kernel/kernel_spec.hpp"
#include "runtime/backend/backend.hpp"

namespace flashspan::attention {

struct KernelMetadata {
  std::string spec;     ///< KernelSpec::to_text()
  std::string summary;  ///< KernelSpec::summary()
  std::string target;
  std::string compiler;
  std::vector<std::string> options;
  std::string alias;              ///< key of what was compiled, without what compiled it; empty if that has no meaning
  backend::CompileReport report;  ///< without its log
  std::int64_t created_unix_seconds = 0;
  /// Why there is no binary: the kernel does not fit its registers, and another one serves in its place. Empty: there
  /// is.
  std::string does_not_fit;
};

/// JSON text.
[[nodiscard]] std::string to_text(const KernelMetadata& metadata);
/// Nothing if `text` is not what to_text() writes.
[[nodiscard]] std::optional<KernelMetadata> metadata_from_text(const std::string& text);

}  // namespace flashspan::attention
