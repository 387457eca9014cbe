// emulated_kernel.cpp -- see emulated_kernel.hpp.
#include "tests/kernel/emulator/emulated_kernel.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "codegen/kernel/emit_cuda.hpp"

namespace flashspan::test {
namespace {

namespace fs = std::filesystem;

const fs::path emulator_folder = fs::path(FLASHSPAN_SOURCE_DIR) / "tests/kernel/emulator";

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return std::move(text).str();
}

// Everything else stays hidden, so that libraries opened one after another share nothing.
constexpr const char* exported = "extern \"C\" __attribute__((visibility(\"default\"))) ";

/// A folder of our own in `parent`, removed with everything in it.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& parent) {
    std::error_code ignored;
    fs::create_directories(parent, ignored);
    std::string name = (parent / "flashspan_emulator_XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

Error compile_error(const std::string& detail) {
  return Error{ErrorCode::compile_failed, "host compiler", "an error", "the kernel's text as C++", detail};
}

// Threads that jump to stacks of their own are not what _FORTIFY_SOURCE takes them for.
constexpr const char* compile_command =
    FLASHSPAN_HOST_COMPILER " -std=c++20 -O1 -w -fPIC -fvisibility=hidden -U_FORTIFY_SOURCE -shared";

/// Path of the library in `folder` that `source` is compiled into.
Result<fs::path> compile_library(const std::string& source, const fs::path& folder) {
  const fs::path text = folder / "kernel.cpp";
  const fs::path library = folder / "kernel.so";
  const fs::path messages = folder / "messages.txt";
  std::ofstream(text) << source;
  const std::string command = std::string(compile_command) + " '" + text.string() + "' -o '" + library.string() +
                              "' 2>'" + messages.string() + "'";
  if (std::system(command.c_str()) != 0)
    return compile_error(contents(messages));  // NOLINT(bugprone-command-processor)
  return library;
}

/// A function "emulate_<entry>" that runs the entry on a grid.
std::string launcher(const std::string& entry) {
  const bool of_program = entry == kernel::entry_plan_program;
  const bool of_planner = entry.starts_with("plan_");
  const bool of_score = entry.starts_with("attention_backward_score_");
  std::string call = entry + (of_program ? "(*static_cast<ProgramCode*>(arguments[0]), "
                                           "*static_cast<ProgramArguments*>(arguments[1])"
                                         : "(*static_cast<AttentionParameters*>(arguments[0]), "
                                           "*static_cast<ProgramArguments*>(arguments[1])");
  if (!of_planner) call += ", *static_cast<ProgramArguments*>(arguments[2])";
  if (of_score) call += ", *static_cast<ScoreGradientArguments*>(arguments[3])";
  return std::string(exported) + "const char* emulate_" + entry +
         "(long long blocks, int threads, bool last_first, void* const* arguments) {\n"
         "  using namespace flashspan_device;\n"
         "  return emulation::run_grid(blocks, threads, last_first, " +
         (of_score ? "score_gradient_shared_bytes" : "shared_bytes") + ", [&] { " + call + "); });\n}\n";
}

}  // namespace

std::string for_the_emulator(kernel::SourceText source) {
  for (kernel::SourceFile& file : source.files) {
    if (file.name.starts_with("ptx/")) file.text = contents(emulator_folder / file.name);
  }
  std::string text = source.flattened();
  const std::string dynamic = "extern __shared__ __align__(16)";
  for (std::size_t at = text.find(dynamic); at != std::string::npos; at = text.find(dynamic, at)) {
    text.replace(at, dynamic.size(), "extern");
  }
  return text;
}

void* symbol(const std::shared_ptr<void>& library, const char* name) { return dlsym(library.get(), name); }

Result<std::shared_ptr<void>> compile_for_host(const char* device, const std::string& source) {
  const std::string text = contents(emulator_folder / device) + source;
  // What another process has compiled: tests of one suite have many libraries in common.
  const char* const kept = std::getenv("FLASHSPAN_TESTS_CACHE_DIR");
  const TemporaryFolder folder(kept != nullptr ? fs::path(kept) : fs::temp_directory_path());
  const std::string name = "emulated_" + std::to_string(std::hash<std::string>{}(compile_command + text)) + ".so";
  const fs::path library = (kept != nullptr ? fs::path(kept) : folder.path()) / name;
  if (!fs::exists(library)) {
    const auto compiled = compile_library(text, folder.path());
    if (!compiled) return compiled.error();
    std::error_code ignored;
    fs::rename(*compiled, library, ignored);
  }
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return compile_error(dlerror());
  return std::shared_ptr<void>(handle, [](void* opened) { dlclose(opened); });
}

Result<EmulatedKernel> EmulatedKernel::compile(const kernel::SourceText& source) {
  std::string text = for_the_emulator(source);
  for (const kernel::ProgramText& program : source.programs) {
    for (const std::string& entry : program.entry_points) text += launcher(entry);
  }
  text += std::string(exported) + "long long bank_conflicts() { return emulation::block.bank_conflicts; }\n";
  // Calls that differ in data alone have one kernel.
  static std::map<std::string, std::shared_ptr<void>> compiled;
  if (const auto found = compiled.find(text); found != compiled.end()) return EmulatedKernel(found->second);
  auto library = compile_for_host("device.hpp", text);
  if (!library) return library.error();
  compiled.emplace(text, *library);
  return EmulatedKernel(*std::move(library));
}

std::string EmulatedKernel::run(const std::string& entry, long long blocks, int threads,
                                std::span<void* const> arguments, BlockOrder order) const {
  using Launcher = const char* (*)(long long, int, bool, void* const*);
  const auto launch = reinterpret_cast<Launcher>(symbol(library_, ("emulate_" + entry).c_str()));
  if (launch == nullptr) return "no entry point " + entry;
  return launch(blocks, threads, order == BlockOrder::last_first, arguments.data());
}

long long EmulatedKernel::bank_conflicts() const {
  return reinterpret_cast<long long (*)()>(symbol(library_, "bank_conflicts"))();
}

}  // namespace flashspan::test
