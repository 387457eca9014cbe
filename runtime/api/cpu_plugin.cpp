// cpu_plugin.cpp -- finds and opens the shared object of the CPU back end. LLVM comes into the process with it and no
// earlier, and its symbols stay out of sight (RTLD_LOCAL).
#include "runtime/backend/cpu_plugin.h"

#include <dlfcn.h>

#include <string>

#include "runtime/api/backends.hpp"
#include "runtime/api/own_folder.hpp"

namespace flashspan::api {

namespace {

constexpr const char* plugin_file = "libflashspan_cpu.so";
constexpr const char* remedy =
    "build Flashspan with FLASHSPAN_BUILD_CPU=ON (apt-get install llvm-19-dev libtbb-dev), or set FLASHSPAN_CPU_PLUGIN "
    "to the file";

/// The entry of the plug-in at `file`, or null with the reason in `why`.
flashspan_cpu_backend_entry open_entry(const std::filesystem::path& file, std::string& why) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* entry = handle != nullptr ? dlsym(handle, FLASHSPAN_CPU_PLUGIN_ENTRY) : nullptr;
  if (entry == nullptr) {
    const char* reason = dlerror();
    why = reason != nullptr ? reason : "no entry " FLASHSPAN_CPU_PLUGIN_ENTRY;
  }
  return reinterpret_cast<flashspan_cpu_backend_entry>(entry);
}

}  // namespace

std::vector<std::filesystem::path> cpu_plugin_candidates(const Settings& settings) {
  if (settings.cpu_plugin) return {*settings.cpu_plugin};
  std::vector<std::filesystem::path> files;
  if (const auto folder = own_folder(); !folder.empty()) {
    files.push_back(folder / plugin_file);
    files.push_back(folder.parent_path() / "lib" / plugin_file);
  }
  files.emplace_back(plugin_file);  // along the run path and the loader's own path
  files.push_back(std::filesystem::path(FLASHSPAN_INSTALL_LIBRARY_FOLDER) / plugin_file);
  return files;
}

Result<std::shared_ptr<backend::Backend>> open_cpu_backend(const Settings& settings) {
  Error error{ErrorCode::missing_component, "CPU back end", "no usable " + std::string(plugin_file), remedy, ""};
  for (const std::filesystem::path& file : cpu_plugin_candidates(settings)) {
    std::string why;
    const auto entry = open_entry(file, why);
    if (entry != nullptr) {
      if (void* made = entry(FLASHSPAN_CPU_PLUGIN_ABI); made != nullptr) {
        return std::shared_ptr<backend::Backend>(static_cast<backend::Backend*>(made));
      }
      why = file.string() + ": made for another version of the library, or without a compiler for this CPU";
    }
    error.detail += (error.detail.empty() ? "" : "\n") + why;
  }
  return error;
}

}  // namespace flashspan::api
