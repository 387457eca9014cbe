// source_dump.cpp -- tries one directory after another; a dump that cannot be written is no error of its own.
#include "runtime/attention/source_dump.hpp"

#include <fstream>
#include <system_error>

namespace flashspan::attention {

namespace {

const char* extension(kernel::Language language) {
  switch (language) {
    case kernel::Language::cuda:
      return ".cu";
    case kernel::Language::llvm_ir:
      return ".ll";
  }
  return "";
}

bool write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  return !file.fail();
}

}  // namespace

std::optional<std::filesystem::path> dump_source(const kernel::SourceText& source, const std::string& name,
                                                 const std::vector<std::filesystem::path>& directories) {
  const std::string text = source.flattened();
  for (const std::filesystem::path& directory : directories) {
    std::error_code ignored;
    std::filesystem::create_directories(directory, ignored);
    std::filesystem::path path = directory / (name + extension(source.language));
    if (write_file(path, text)) return path;
  }
  return std::nullopt;
}

}  // namespace flashspan::attention
