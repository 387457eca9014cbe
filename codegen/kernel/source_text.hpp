// source_text.hpp -- SourceText: the complete text of one kernel module, in one of two languages.
#pragma once

#include <string>
#include <vector>

namespace flashspan::kernel {

enum class Language { cuda, llvm_ir };

/// A file that `main` includes, under the name it is included by ("tile/fragment.cuh").
struct SourceFile {
  std::string name;
  std::string text;
  friend bool operator==(const SourceFile&, const SourceFile&) = default;
};

struct SourceText {
  Language language = Language::cuda;
  std::string main;                       ///< text handed to the compiler
  std::vector<SourceFile> files;          ///< every file it reaches, sorted by name
  std::vector<std::string> entry_points;  ///< kernel (or function) names the module must define
  /// Arrays of a thread's own are meant to be in local memory. Spills of registers never are.
  bool uses_local_memory = false;

  /// One self-contained text: includes replaced by their files, once each, with #line markers (CUDA only).
  [[nodiscard]] std::string flattened() const;
};

}  // namespace flashspan::kernel
