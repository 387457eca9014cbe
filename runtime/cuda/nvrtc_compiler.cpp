#include "runtime/cuda/nvrtc_compiler.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

#include "codegen/kernel/arch_limits.hpp"
#include "runtime/cuda/cubin.hpp"
#include "runtime/cuda/ptxas_report.hpp"

namespace flashspan::cuda {
namespace {

constexpr const char* program_name = "flashspan_kernel.cu";
constexpr int nvrtc_success = 0;

/// One nvrtcProgram, destroyed at the end of the scope.
class Program {
 public:
  Program(const NvrtcApi& api, const kernel::SourceText& source) : api_(api) {
    std::vector<const char*> texts;
    std::vector<const char*> names;
    for (const kernel::SourceFile& file : source.files) {
      texts.push_back(file.text.c_str());
      names.push_back(file.name.c_str());
    }
    created_ = api_.create_program(&program_, source.main.c_str(), program_name, static_cast<int>(texts.size()),
                                   texts.data(), names.data());
  }
  ~Program() {
    if (created_ == nvrtc_success) api_.destroy_program(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] int created() const { return created_; }

  int compile(const std::vector<std::string>& options) {
    std::vector<const char*> texts;
    texts.reserve(options.size());
    for (const std::string& option : options) texts.push_back(option.c_str());
    return api_.compile_program(program_, static_cast<int>(texts.size()), texts.data());
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

Error compile_failed(std::string got, std::string detail) {
  return Error{ErrorCode::compile_failed, "kernel", std::move(got), "source that NVRTC compiles", std::move(detail)};
}

/// Errors that only show in a compile that succeeded.
std::optional<Error> defect(const kernel::SourceText& source, const backend::CompileReport& report) {
  for (const std::string& name : source.entry_points) {
    const auto defines = [&](const backend::EntryReport& entry) { return entry.name == name; };
    if (std::none_of(report.entries.begin(), report.entries.end(), defines)) {
      return compile_failed("a module without the entry point " + name, report.log);
    }
  }
  for (const backend::EntryReport& entry : report.entries) {
    if (entry.spill_bytes == 0 && (entry.stack_bytes == 0 || source.uses_local_memory)) continue;
    return Error{ErrorCode::kernel_spills, entry.name,
                 std::to_string(entry.spill_bytes) + " bytes of spills and a stack of " +
                     std::to_string(entry.stack_bytes) + " bytes, with " + std::to_string(entry.registers) +
                     " registers",
                 "a kernel that uses no local memory", report.log};
  }
  // ptxas numbers its advisories about instructions it had to serialise or ignore (wgmma, setmaxnreg) C75xx.
  if (report.log.find("(C75") != std::string::npos) {
    return Error{ErrorCode::kernel_spills, "kernel", "a ptxas advisory C75xx: an instruction was serialised or ignored",
                 "a kernel whose products find the registers they need", report.log};
  }
  return std::nullopt;
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
  Program program(library_.api, source);
  if (program.created() != nvrtc_success) {
    return compile_failed(library_.api.get_error_string(program.created()), "nvrtcCreateProgram");
  }
  const int result = program.compile(options(arch));
  if (result != nvrtc_success) return compile_failed(library_.api.get_error_string(result), program.log());
  return program.ptx();
}

Result<backend::Binary> NvrtcCompiler::compile(const kernel::SourceText& source, Arch arch) const {
  if (auto checked = check(source, arch); !checked) return checked.error();
  const auto start = std::chrono::steady_clock::now();
  Program program(library_.api, source);
  if (program.created() != nvrtc_success) {
    return compile_failed(library_.api.get_error_string(program.created()), "nvrtcCreateProgram");
  }
  const int result = program.compile(options(arch));
  const std::string log = program.log();
  if (result != nvrtc_success) return compile_failed(library_.api.get_error_string(result), log);

  backend::Binary binary;
  binary.bytes = program.cubin();
  PtxasReport report = parse_ptxas_report(log);
  binary.report.entries = std::move(report.entries);
  binary.report.log = std::move(report.warnings);
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  binary.report.milliseconds = elapsed.count();
  if (const auto damage = cubin_damage(binary.bytes)) return compile_failed("a damaged cubin: " + *damage, log);
  if (const auto error = defect(source, binary.report)) return *error;
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
