#include "runtime/cuda/nvrtc_compiler.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
#include <optional>

#include "codegen/kernel/arch_limits.hpp"
#include "runtime/cuda/cubin.hpp"
#include "runtime/cuda/ptxas_report.hpp"

namespace flashspan::cuda {
namespace {

constexpr const char* program_name = "flashspan_kernel.cu";
constexpr int nvrtc_success = 0;

Error compile_failed(std::string got, std::string detail) {
  return Error{ErrorCode::compile_failed, "kernel", std::move(got), "source that NVRTC compiles", std::move(detail)};
}

/// One nvrtcProgram, destroyed at the end of the scope.
class Program {
 public:
  Program(const NvrtcApi& api, const std::string& main, const std::vector<kernel::SourceFile>& files) : api_(api) {
    std::vector<const char*> texts;
    std::vector<const char*> names;
    for (const kernel::SourceFile& file : files) {
      texts.push_back(file.text.c_str());
      names.push_back(file.name.c_str());
    }
    created_ = api_.create_program(&program_, main.c_str(), program_name, static_cast<int>(texts.size()), texts.data(),
                                   names.data());
  }
  ~Program() {
    if (created_ == nvrtc_success) api_.destroy_program(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Error: compile_failed, with the log in `detail`.
  [[nodiscard]] Result<void> compile(const std::vector<std::string>& options) {
    if (created_ != nvrtc_success) return compile_failed(api_.get_error_string(created_), "nvrtcCreateProgram");
    std::vector<const char*> texts;
    texts.reserve(options.size());
    for (const std::string& option : options) texts.push_back(option.c_str());
    const int result = api_.compile_program(program_, static_cast<int>(texts.size()), texts.data());
    if (result != nvrtc_success) return compile_failed(api_.get_error_string(result), log());
    return {};
  }

  [[nodiscard]] std::string log() const {
    std::size_t size = 0;
    if (api_.get_program_log_size(program_, &size) != nvrtc_success || size == 0) return {};
    std::string text(size, '\0');
    if (api_.get_program_log(program_, text.data()) != nvrtc_success) return {};
    text.resize(std::min(text.find('\0'), text.size()));  // the size counts one or more terminating zeros
    return text;
  }

  [[nodiscard]] std::vector<std::byte> cubin() const {
    std::size_t size = 0;
    if (api_.get_cubin_size(program_, &size) != nvrtc_success) return {};
    std::vector<std::byte> bytes(size);
    if (api_.get_cubin(program_, reinterpret_cast<char*>(bytes.data())) != nvrtc_success) return {};
    return bytes;
  }

  [[nodiscard]] std::string ptx() const {
    std::size_t size = 0;
    if (api_.get_ptx_size(program_, &size) != nvrtc_success) return {};
    std::string text(size, '\0');
    if (api_.get_ptx(program_, text.data()) != nvrtc_success) return {};
    text.resize(std::min(text.find('\0'), text.size()));
    return text;
  }

 private:
  const NvrtcApi& api_;
  NvrtcApi::Program program_ = nullptr;
  int created_ = nvrtc_success;
};

/// Errors that only show in a compile that succeeded.
std::optional<Error> defect(const kernel::ProgramText& program, bool uses_local_memory, const PtxasReport& report) {
  for (const std::string& name : program.entry_points) {
    const auto defines = [&](const backend::EntryReport& entry) { return entry.name == name; };
    if (std::none_of(report.entries.begin(), report.entries.end(), defines)) {
      return compile_failed("a module without the entry point " + name, report.warnings);
    }
  }
  for (const backend::EntryReport& entry : report.entries) {
    if (entry.spill_bytes == 0 && (entry.stack_bytes == 0 || uses_local_memory)) continue;
    return Error{ErrorCode::kernel_spills, entry.name,
                 std::to_string(entry.spill_bytes) + " bytes of spills and a stack of " +
                     std::to_string(entry.stack_bytes) + " bytes, with " + std::to_string(entry.registers) +
                     " registers",
                 "a kernel that uses no local memory", report.warnings};
  }
  // ptxas numbers its advisories about instructions it had to serialise or ignore (wgmma, setmaxnreg) C75xx.
  if (report.warnings.find("(C75") != std::string::npos) {
    return Error{ErrorCode::kernel_spills, "kernel", "a ptxas advisory C75xx: an instruction was serialised or ignored",
                 "a kernel whose products find the registers they need", report.warnings};
  }
  return std::nullopt;
}

struct CompiledProgram {
  std::vector<std::byte> cubin;
  PtxasReport report;
};

Result<CompiledProgram> compile_program(const NvrtcApi& api, const kernel::SourceText& source,
                                        const kernel::ProgramText& text, const std::vector<std::string>& options) {
  Program program(api, text.main, source.files);
  if (auto done = program.compile(options); !done) return done.error();
  CompiledProgram compiled{program.cubin(), parse_ptxas_report(program.log())};
  if (const auto damage = cubin_damage(compiled.cubin)) {
    return compile_failed("a damaged cubin: " + *damage, compiled.report.warnings);
  }
  if (auto error = defect(text, source.uses_local_memory, compiled.report)) return *std::move(error);
  return compiled;
}

void append_report(backend::CompileReport& report, PtxasReport more) {
  std::ranges::move(more.entries, std::back_inserter(report.entries));
  std::ranges::sort(report.entries, {}, &backend::EntryReport::name);
  if (!report.log.empty() && !more.warnings.empty()) report.log += "\n";
  report.log += more.warnings;
}

}  // namespace

Result<std::shared_ptr<const NvrtcCompiler>> NvrtcCompiler::open(const NvrtcSearch& search) {
  auto library = open_nvrtc(search);
  if (!library) return library.error();
  return std::make_shared<const NvrtcCompiler>(*std::move(library));
}

std::string NvrtcCompiler::description() const {
  const std::string version = "nvrtc " + std::to_string(library_.major) + "." + std::to_string(library_.minor);
  return library_.build_id.empty() ? version : version + " build " + library_.build_id;
}

std::vector<std::string> NvrtcCompiler::options_of_output(Arch arch) {
  return {
      "--gpu-architecture=" + to_string(arch),
      "-std=c++17",
      // Otherwise NVRTC lifts the whole process's stack limit during a compile.
      "-modify-stack-limit=false",
      // Otherwise a file that is missing from the SourceText would be looked for in the working directory.
      "-no-source-include",
      "--ptxas-options=-v",
  };
}

std::vector<std::string> NvrtcCompiler::options(int major, int minor, Arch arch) {
  std::vector<std::string> options = options_of_output(arch);
  // From 12.9 on NVRTC keeps a cache of its own, for which it opens libcuda and calls cuInit.
  const bool has_cache = major > 12 || (major == 12 && minor >= 9);
  if (has_cache) options.emplace_back("-no-cache");
  return options;
}

Result<void> NvrtcCompiler::check(const kernel::SourceText& source, Arch arch) const {
  if (source.language != kernel::Language::cuda) {
    return Error{ErrorCode::bad_argument, "source", "LLVM IR", "CUDA C++", ""};
  }
  if (!std::binary_search(library_.archs.begin(), library_.archs.end(), arch.number)) {
    return Error{ErrorCode::unsupported, "arch", to_string(arch) + " with " + identity(),
                 "sm_" + std::to_string(std::max(library_.archs.front(), kernel::oldest_arch)) + " to sm_" +
                     std::to_string(library_.archs.back()) + "; sm_100 and sm_120 need NVRTC 12.8 or later",
                 library_.path};
  }
  return {};
}

Result<std::string> NvrtcCompiler::ptx(const kernel::SourceText& source, Arch arch) const {
  if (auto checked = check(source, arch); !checked) return checked.error();
  Program program(library_.api, source.main(), source.files);
  if (auto done = program.compile(options(arch)); !done) return done.error();
  return program.ptx();
}

Result<backend::Binary> NvrtcCompiler::compile(const kernel::SourceText& source, Arch arch) const {
  if (auto checked = check(source, arch); !checked) return checked.error();
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::string> options = this->options(arch);
  // The first is compiled on this thread, by its get() below; so are the others if no thread can be started for them.
  std::vector<std::future<Result<CompiledProgram>>> compiling;
  for (const kernel::ProgramText& program : source.programs) {
    const auto launch = compiling.empty() ? std::launch::deferred : std::launch::async | std::launch::deferred;
    compiling.push_back(std::async(launch, [&] { return compile_program(library_.api, source, program, options); }));
  }
  backend::Binary binary;
  for (std::size_t i = 0; i < compiling.size(); ++i) {
    auto compiled = compiling[i].get();
    if (!compiled) return compiled.error();
    binary.modules.push_back({source.programs[i].name, std::move(compiled->cubin)});
    append_report(binary.report, std::move(compiled->report));
  }
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  binary.report.milliseconds = elapsed.count();
  return binary;
}

Result<std::shared_ptr<const NvrtcCompiler>> NvrtcOnDemand::get() {
  const std::lock_guard lock(mutex_);
  return open();
}

Result<std::shared_ptr<const NvrtcCompiler>> NvrtcOnDemand::open() {
  if (compiler_ == nullptr) {
    auto opened = NvrtcCompiler::open(search_);
    if (!opened) return opened.error();
    compiler_ = *std::move(opened);
  }
  return compiler_;
}

Result<std::string> NvrtcOnDemand::identity() {
  const std::lock_guard lock(mutex_);
  if (compiler_ == nullptr && !named_) {
    if (auto named = name_nvrtc(search_)) {
      search_.first = std::move(named->path);
      named_ = std::move(named->identity);
    }
  }
  if (compiler_ == nullptr && named_) return *named_;
  const auto compiler = open();
  if (!compiler) return compiler.error();
  return (*compiler)->identity();
}

}  // namespace flashspan::cuda
