// source_text.hpp -- SourceText: the complete text of one kernel, in one of two languages.
#pragma once

#include <string>
#include <vector>

namespace flashspan::kernel {

enum class Language { cuda, llvm_ir };

/// A file that programs include, under the name it is included by ("tile/fragment.cuh").
struct SourceFile {
  std::string name;
  std::string text;
  friend bool operator==(const SourceFile&, const SourceFile&) = default;
};

/// What is compiled by itself, into one module.
struct ProgramText {
  std::string name;  ///< of its module's file beside others, as an infix; empty: the one that the kernel is named after
  std::string main;  ///< text handed to the compiler
  std::vector<std::string> entry_points;  ///< kernel (or function) names the module must define
};

struct SourceText {
  Language language = Language::cuda;
  std::vector<ProgramText> programs;  ///< they share nothing but files, and may be compiled at the same time
  std::vector<SourceFile> files;      ///< every file that they reach, sorted by name
  /// Arrays of a thread's own are meant to be in local memory. Spills of registers never are.
  bool uses_local_memory = false;

  /// The programs as one, which a compiler makes a single module of.
  [[nodiscard]] std::string main() const;
  /// One self-contained text of all programs: includes replaced by their files, once each, with #line markers (CUDA
  /// only).
  [[nodiscard]] std::string flattened() const;
};

}  // namespace flashspan::kernel
