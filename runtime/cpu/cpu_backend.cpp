#include "runtime/cpu/cpu_backend.hpp"

#include <tbb/info.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "codegen/kernel/emit_llvm.hpp"
#include "runtime/backend/cpu_plugin.h"
#include "runtime/backend/workspace_check.hpp"
#include "runtime/cpu/attention_backward.hpp"
#include "runtime/cpu/attention_forward.hpp"
#include "runtime/cpu/tile_planner.hpp"

namespace flashspan::cpu {
namespace {

/// "AMD EPYC 9B45", as the kernel reports it, or LLVM's name where it does not.
std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return host_machine().cpu;
}

/// What an exception of a standard container or of TBB becomes at the border.
Error host_error(const std::exception& error) {
  return {ErrorCode::device_error, "cpu", error.what(), "enough memory and threads", ""};
}

}  // namespace

CpuBackend::CpuBackend() {
  const HostMachine& host = host_machine();
  facts_.device = {DeviceKind::cpu, 0};
  facts_.target = {DeviceKind::cpu, {}};
  facts_.name = cpu_name();
  facts_.detail = "llvm " + llvm_version() + ", " + host.cpu + ", " + std::to_string(host.vector_lanes) +
                  " fp32 lanes per register";
  facts_.memory_bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  facts_.processors = tbb::info::default_concurrency();
}

Result<std::string> CpuBackend::compiler_identity() {
  const HostMachine& host = host_machine();
  return "llvm " + llvm_version() + " " + host.triple + " " + host.cpu + " " + host.features;
}

std::vector<std::string> CpuBackend::compile_options(const kernel::KernelSpec&) const {
  return {"O3", "pic", "vector_lanes=" + std::to_string(host_machine().vector_lanes)};
}

Result<backend::Binary> CpuBackend::compile(const kernel::SourceText& source, const kernel::KernelSpec&) {
  if (source.language != kernel::Language::llvm_ir) {
    return Error{ErrorCode::compile_failed, "source", "CUDA C++", "LLVM IR on the CPU", ""};
  }
  const auto start = std::chrono::steady_clock::now();
  const kernel::ProgramText& program = source.programs.front();  // emit_llvm() writes one
  Result<std::vector<std::byte>> object = compile_ir(program.main);
  if (!object) return object.error();
  backend::Binary binary;
  binary.modules.push_back({program.name, *std::move(object)});
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  binary.report.milliseconds = elapsed.count();
  for (const std::string& name : program.entry_points) binary.report.entries.push_back({name, 0, 0, 0, 0});
  return binary;
}

Result<std::shared_ptr<backend::LoadedKernel>> CpuBackend::load(const std::vector<std::byte>& binary,
                                                                const kernel::KernelSpec& spec) {
  Result<LoadedObject> object = LoadedObject::load(binary);
  if (!object) return object.error();
  TileFunctions functions{};
  std::string missing;
  for (const std::string& name : kernel::llvm_entry_points(spec)) {
    void* address = object->address(name);
    if (address == nullptr) missing = name;
    for_each_function(functions, [&](std::string_view function_name, auto& pointer) {
      if (function_name == name) pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(address);
    });
  }
  if (!missing.empty()) {
    return Error{ErrorCode::unsupported, "object", "machine code without " + missing,
                 "a module of spec " + spec.summary(), ""};
  }
  std::vector<kernel::ScoreLookup> lookups;
  if (!spec.score_gradients.empty()) {
    const Result<mask::Program> score = mask::Program::from_signature(spec.score);
    if (!score) return score.error();
    lookups = kernel::score_lookups(*score, spec.score_gradients);
  }
  return std::shared_ptr<backend::LoadedKernel>(
      std::make_shared<CpuKernel>(std::move(*object), functions, std::move(lookups)));
}

std::int64_t CpuBackend::workspace_bytes(const kernel::KernelSpec& spec, const backend::LaunchArgs& args) const {
  return lay_out(spec.direction, CallSizes(spec, args), nullptr).bytes;
}

Result<void> CpuBackend::run(backend::LoadedKernel& kernel, const kernel::KernelSpec& spec,
                             const backend::LaunchArgs& args) {
  const CallSizes sizes(spec, args);
  const Workspace workspace = lay_out(spec.direction, sizes, args.workspace);
  if (auto large = backend::check_workspace(args.workspace, args.workspace_bytes, workspace.bytes); !large)
    return large;
  const auto& loaded = static_cast<const CpuKernel&>(kernel);
  const TileFunctions& functions = loaded.functions();
  try {
    if (sizes.planned && !args.planned)
      plan_tiles(functions, *args.mask_program, *args.mask_bindings, sizes, workspace);
    switch (spec.direction) {
      case Direction::forward:
        attention_forward(functions, args, sizes, workspace);
        break;
      case Direction::backward:
        attention_backward(functions, loaded.lookups(), args, sizes, workspace);
        break;
    }
  } catch (const std::exception& error) {
    return host_error(error);
  }
  return {};
}

Result<double> CpuBackend::measure(Stream /*stream*/, const std::function<Result<void>()>& queue) {
  const auto begin = std::chrono::steady_clock::now();
  if (auto done = queue(); !done) return done.error();
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
  return elapsed.count();
}

}  // namespace flashspan::cpu

extern "C" __attribute__((visibility("default"))) void* flashspan_cpu_backend(int abi) {
  if (abi != FLASHSPAN_CPU_PLUGIN_ABI) return nullptr;
  return static_cast<flashspan::backend::Backend*>(new flashspan::cpu::CpuBackend());
}
