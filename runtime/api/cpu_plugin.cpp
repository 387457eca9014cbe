// cpu_plugin.cpp -- finds and opens the shared object of the CPU back end. LLVM comes into the process with it and no
// earlier, and its symbols stay out of sight (RTLD_LOCAL).
#include "runtime/backend/cpu_plugin.h"

#include <string>

#include "runtime/api/backends.hpp"
#include "runtime/api/plugin_file.hpp"

namespace flashspan::api {

namespace {

constexpr const char* plugin_file = "libflashspan_cpu.so";
constexpr const char* remedy =
    "build Flashspan with FLASHSPAN_BUILD_CPU=ON (apt-get install llvm-19-dev libtbb-dev), or set FLASHSPAN_CPU_PLUGIN "
    "to the file";

}  // namespace

Result<std::shared_ptr<backend::Backend>> open_cpu_backend(const Settings& settings) {
  Error error{ErrorCode::missing_component, "CPU back end", "no usable " + std::string(plugin_file), remedy, ""};
  for (const std::filesystem::path& file : plugin_candidates(plugin_file, settings.cpu_plugin)) {
    std::string why;
    void* const symbol = open_plugin(file, FLASHSPAN_CPU_PLUGIN_ENTRY, why);
    if (const auto entry = reinterpret_cast<flashspan_cpu_backend_entry>(symbol); entry != nullptr) {
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
