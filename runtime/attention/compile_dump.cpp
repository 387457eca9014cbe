// compile_dump.cpp -- tries one directory after another; a dump that cannot be written is no error of its own.
#include "runtime/attention/compile_dump.hpp"

#include <fstream>
#include <string_view>
#include <system_error>

namespace flashspan::attention {

namespace {

const char* source_extension(kernel::Language language) { return language == kernel::Language::cuda ? ".cu" : ".ll"; }

const char* binary_extension(kernel::Language language) { return language == kernel::Language::cuda ? ".cubin" : ".o"; }

bool write_file(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return !file.fail();
}

std::optional<DumpedFiles> dump_into(const std::filesystem::path& directory, const CompileDump& dump,
                                     const std::string& name) {
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  const kernel::Language language = dump.source.language;
  DumpedFiles files{directory / (name + source_extension(language)), directory / (name + ".spec")};
  bool whole = write_file(files.source, dump.source.flattened()) && write_file(files.spec, dump.spec.to_text()) &&
               write_file(directory / (name + ".log"), dump.log);
  for (const backend::Module& module : dump.modules) {
    const std::string infix = module.program.empty() ? "" : "." + module.program;
    whole = whole && write_file(directory / (name + infix + binary_extension(language)),
                                {reinterpret_cast<const char*>(module.bytes.data()), module.bytes.size()});
  }
  if (!whole) return std::nullopt;
  return files;
}

}  // namespace

std::optional<DumpedFiles> dump_compile(const CompileDump& dump, const std::string& name,
                                        const std::vector<std::filesystem::path>& directories) {
  for (const std::filesystem::path& directory : directories) {
    if (auto files = dump_into(directory, dump, name)) return files;
  }
  return std::nullopt;
}

}  // namespace flashspan::attention
