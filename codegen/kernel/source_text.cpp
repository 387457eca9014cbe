// source_text.cpp -- one self-contained text out of programs and the files that they include.
#include "codegen/kernel/source_text.hpp"

#include <algorithm>
#include <set>
#include <string_view>

#include "codegen/kernel/include_lines.hpp"

namespace flashspan::kernel {
namespace {

class Flattener {
 public:
  explicit Flattener(const std::vector<SourceFile>& files) : files_(files) {}

  void append(const std::string& name, std::string_view text) {
    int line_number = 1;
    mark(line_number, name);
    for_each_line(text, [&](std::string_view line) {
      ++line_number;
      if (line == "#pragma once") return append_line("");
      const auto included = included_file(line);
      const SourceFile* const file = included ? find(*included) : nullptr;
      if (file == nullptr) return append_line(line);
      if (done_.insert(file->name).second) append(file->name, file->text);
      mark(line_number, name);
    });
  }

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  void append_line(std::string_view line) {
    text_ += line;
    text_ += '\n';
  }
  void mark(int line, const std::string& name) { append_line("#line " + std::to_string(line) + " \"" + name + "\""); }

  [[nodiscard]] const SourceFile* find(std::string_view name) const {
    const auto found =
        std::find_if(files_.begin(), files_.end(), [&](const SourceFile& file) { return file.name == name; });
    return found == files_.end() ? nullptr : &*found;
  }

  const std::vector<SourceFile>& files_;
  std::set<std::string> done_;
  std::string text_;
};

}  // namespace

std::string SourceText::main() const {
  std::string text;
  for (const ProgramText& program : programs) text += program.main;
  return text;
}

std::string SourceText::flattened() const {
  if (language != Language::cuda) return main();
  Flattener flattener(files);
  flattener.append("flashspan_kernel.cu", main());
  return flattener.take();
}

}  // namespace flashspan::kernel
