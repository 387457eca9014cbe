#include "runtime/api/plugin_file.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "runtime/api/own_folder.hpp"

namespace flashspan::api {
namespace {

using Entry = void* (*)(int abi);

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

}  // namespace

Result<void*> make_from_plugin(const Plugin& plugin, const std::optional<std::string>& chosen) {
  Error error{ErrorCode::missing_component, plugin.what, "no usable " + std::string(plugin.file_name), plugin.remedy,
              ""};
  for (const std::filesystem::path& file : plugin_candidates(plugin.file_name, chosen)) {
    std::string why;
    if (const auto entry = reinterpret_cast<Entry>(open_plugin(file, plugin.entry, why)); entry != nullptr) {
      if (void* made = entry(plugin.abi); made != nullptr) return made;
      why = file.string() + ": made for another version of the library" + plugin.other_version;
    }
    error.detail += (error.detail.empty() ? "" : "\n") + why;
  }
  return error;
}

}  // namespace flashspan::api
