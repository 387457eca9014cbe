// cpu_plugin.cpp -- finds and opens the shared object of the CPU back end. LLVM comes into the process with it and no
// earlier, and its symbols stay out of sight (RTLD_LOCAL).
#include "runtime/backend/cpu_plugin.h"

#include "runtime/api/backends.hpp"
#include "runtime/api/plugin_file.hpp"

namespace flashspan::api {

namespace {

constexpr Plugin plugin{
    "CPU back end",
    "libflashspan_cpu.so",
    FLASHSPAN_CPU_PLUGIN_ENTRY,
    FLASHSPAN_CPU_PLUGIN_ABI,
    ", or without a compiler for this CPU",
    "build Flashspan with FLASHSPAN_BUILD_CPU=ON (apt-get install llvm-19-dev libtbb-dev), or set FLASHSPAN_CPU_PLUGIN "
    "to the file"};

}  // namespace

Result<std::shared_ptr<backend::Backend>> open_cpu_backend(const Settings& settings) {
  const auto made = make_from_plugin(plugin, settings.cpu_plugin);
  if (!made) return made.error();
  return std::shared_ptr<backend::Backend>(static_cast<backend::Backend*>(*made));
}

}  // namespace flashspan::api
