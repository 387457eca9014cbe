#include "runtime/api/plugin_file.hpp"

#include <dlfcn.h>

#include "runtime/api/own_folder.hpp"

namespace flashspan::api {

std::vector<std::filesystem::path> plugin_candidates(const std::string& file_name,
                                                     const std::optional<std::string>& chosen) {
  if (chosen) return {*chosen};
  std::vector<std::filesystem::path> files;
  if (const auto folder = own_folder(); !folder.empty()) {
    files.push_back(folder / file_name);
    files.push_back(folder.parent_path() / "lib" / file_name);
  }
  files.emplace_back(file_name);  // along the run path and the loader's own path
  files.push_back(std::filesystem::path(FLASHSPAN_INSTALL_LIBRARY_FOLDER) / file_name);
  return files;
}

void* open_plugin(const std::filesystem::path& file, const char* symbol, std::string& why) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* found = handle != nullptr ? dlsym(handle, symbol) : nullptr;
  if (found == nullptr) {
    const char* reason = dlerror();
    why = reason != nullptr ? reason : std::string("no entry ") + symbol;
  }
  return found;
}

}  // namespace flashspan::api
