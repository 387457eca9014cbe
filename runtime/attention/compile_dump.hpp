// compile_dump.hpp -- keeps what went into a compile and came out of it, so that its user can read, send or rerun it.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernel/kernel_spec.hpp"
#include "codegen/kernel/source_text.hpp"
#include "runtime/backend/backend.hpp"

namespace flashspan::attention {

struct CompileDump {
  const kernel::SourceText& source;
  const kernel::KernelSpec& spec;
  const std::string& log;                         ///< the compiler's
  std::span<const backend::Module> modules = {};  ///< none: nothing came out
};

/// Where the parts of a dump are.
struct DumpedFiles {
  std::filesystem::path source;  ///< <name>.cu or <name>.ll: the flattened text, of all programs
  std::filesystem::path spec;    ///< <name>.spec: KernelSpec::to_text()
};

/// Writes these, <name>.log and the modules, <name>.cubin or <name>.o and, of a program with a name of its own,
/// <name>.<program>.cubin, into the first of `directories` that takes them. Nothing if none did.
[[nodiscard]] std::optional<DumpedFiles> dump_compile(const CompileDump& dump, const std::string& name,
                                                      const std::vector<std::filesystem::path>& directories);

}  // namespace flashspan::attention
