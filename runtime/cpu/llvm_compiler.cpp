#include "runtime/cpu/llvm_compiler.hpp"

#include <llvm/AsmParser/Parser.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

#include "codegen/kernel/emit_llvm.hpp"

namespace flashspan::cpu {
namespace {

void initialise_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

HostMachine examine_host() {
  HostMachine host;
  host.cpu = llvm::sys::getHostCPUName().str();
  host.triple = llvm::sys::getProcessTriple();
  std::map<std::string, bool> features;
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) features[feature.getKey().str()] = feature.getValue();
  for (const auto& [name, present] : features) {
    if (!host.features.empty()) host.features += ',';
    host.features += (present ? '+' : '-') + name;
  }
  const bool wide = features["avx512f"] && features["avx512bw"] && features["avx512dq"] && features["avx512vl"];
  host.vector_lanes = wide ? 16 : features["avx2"] ? 8 : 4;
  return host;
}

std::unique_ptr<llvm::TargetMachine> create_target_machine(std::string& why) {
  initialise_llvm();
  const HostMachine& host = host_machine();
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(host.triple, why);
  if (target == nullptr) return nullptr;
  // Position-independent, so that the object may be loaded anywhere, by any later process on the same machine.
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(host.triple, host.cpu, host.features, llvm::TargetOptions{}, llvm::Reloc::PIC_,
                                  llvm::CodeModel::Small, llvm::CodeGenOptLevel::Aggressive, true));
}

void set_host_vector_lanes(llvm::Module& module) {
  llvm::GlobalVariable* constant = module.getGlobalVariable(kernel::host_vector_lanes_constant, true);
  if (constant == nullptr) return;
  constant->setInitializer(llvm::ConstantInt::get(constant->getValueType(), host_machine().vector_lanes));
}

Error compile_error(const std::string& detail) {
  return {ErrorCode::compile_failed, "llvm", "IR that LLVM refuses", "a module that compiles", detail};
}

void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(module, modules);
}

// What emitted code may call: libm for log, the compiler's own helpers, half conversion on CPUs without F16C. Nothing
// is looked up in the process, so an object means the same everywhere.
extern "C" {
void __extendhfsf2();
void __truncsfhf2();
}

template <typename Function>
llvm::orc::ExecutorAddr address_of(Function* function) {
  return llvm::orc::ExecutorAddr::fromPtr(function);
}

std::map<std::string, llvm::orc::ExecutorAddr> callable_symbols() {
  return {{"logf", address_of(static_cast<float (*)(float)>(&::logf))},
          {"fmaf", address_of(static_cast<float (*)(float, float, float)>(&::fmaf))},
          {"floor", address_of(static_cast<double (*)(double)>(&::floor))},
          {"memcpy", address_of(&::memcpy)},
          {"memset", address_of(&::memset)},
          {"memmove", address_of(&::memmove)},
          {"__extendhfsf2", address_of(&__extendhfsf2)},
          {"__truncsfhf2", address_of(&__truncsfhf2)}};
}

Error load_error(llvm::Error error) {
  return {ErrorCode::unsupported, "object", "machine code that does not load", "an object made on this machine",
          llvm::toString(std::move(error))};
}

}  // namespace

const HostMachine& host_machine() {
  static const HostMachine host = examine_host();
  return host;
}

std::string llvm_version() { return LLVM_VERSION_STRING; }

Result<std::vector<std::byte>> compile_ir(const std::string& text) {
  std::string why;
  const std::unique_ptr<llvm::TargetMachine> machine = create_target_machine(why);
  if (machine == nullptr) return compile_error(why);
  llvm::LLVMContext context;
  llvm::SMDiagnostic diagnostic;
  const std::unique_ptr<llvm::Module> module =
      llvm::parseAssembly(llvm::MemoryBufferRef(text, "flashspan"), diagnostic, context);
  llvm::raw_string_ostream message(why);
  if (module == nullptr) {
    diagnostic.print("flashspan", message, false);
    return compile_error(message.str());
  }
  module->setTargetTriple(host_machine().triple);
  module->setDataLayout(machine->createDataLayout());
  if (llvm::verifyModule(*module, &message)) return compile_error(message.str());
  set_host_vector_lanes(*module);
  optimise(*module, *machine);
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile)) {
    return compile_error("the target writes no object files");
  }
  passes.run(*module);
  std::vector<std::byte> bytes(object.size());
  std::memcpy(bytes.data(), object.data(), object.size());
  return bytes;
}

struct LoadedObject::State {
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

LoadedObject::LoadedObject(std::unique_ptr<State> state) : state_(std::move(state)) {}
LoadedObject::LoadedObject(LoadedObject&&) noexcept = default;
LoadedObject& LoadedObject::operator=(LoadedObject&&) noexcept = default;
LoadedObject::~LoadedObject() = default;

Result<LoadedObject> LoadedObject::load(const std::vector<std::byte>& object) {
  initialise_llvm();
  llvm::orc::JITTargetMachineBuilder machine{llvm::Triple(host_machine().triple)};
  auto jit = llvm::orc::LLJITBuilder()
                 .setJITTargetMachineBuilder(std::move(machine))
                 .setLinkProcessSymbolsByDefault(false)
                 .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
                 .create();
  if (!jit) return load_error(jit.takeError());
  llvm::orc::SymbolMap symbols;
  for (const auto& [name, address] : callable_symbols()) {
    symbols[(*jit)->mangleAndIntern(name)] = {address, llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  }
  if (auto error = (*jit)->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(symbols)))) {
    return load_error(std::move(error));
  }
  const llvm::StringRef bytes(reinterpret_cast<const char*>(object.data()), object.size());
  if (auto error = (*jit)->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(bytes, "flashspan"))) {
    return load_error(std::move(error));
  }
  auto state = std::make_unique<State>();
  state->jit = std::move(*jit);
  return LoadedObject(std::move(state));
}

void* LoadedObject::address(const std::string& name) const {
  auto found = state_->jit->lookup(name);
  if (!found) {
    llvm::consumeError(found.takeError());
    return nullptr;
  }
  return found->toPtr<void*>();
}

}  // namespace flashspan::cpu
