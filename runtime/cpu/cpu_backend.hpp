// cpu_backend.hpp -- Backend for the host CPU: IR compiled by LLVM, tiles spread over TBB's threads.
#pragma once

#include <utility>
#include <vector>

#include "codegen/kernel/score_lookups.hpp"
#include "runtime/backend/backend.hpp"
#include "runtime/cpu/llvm_compiler.hpp"
#include "runtime/cpu/tile_functions.hpp"

namespace flashspan::cpu {

class CpuKernel final : public backend::LoadedKernel {
 public:
  CpuKernel(LoadedObject object, const TileFunctions& functions, std::vector<kernel::ScoreLookup> lookups)
      : object_(std::move(object)), functions_(functions), lookups_(std::move(lookups)) {}
  [[nodiscard]] const TileFunctions& functions() const { return functions_; }
  /// In the order of the functions' results.
  [[nodiscard]] const std::vector<kernel::ScoreLookup>& lookups() const { return lookups_; }

 private:
  LoadedObject object_;
  TileFunctions functions_;
  std::vector<kernel::ScoreLookup> lookups_;
};

class CpuBackend final : public backend::Backend {
 public:
  CpuBackend();

  [[nodiscard]] const backend::DeviceFacts& facts() const override { return facts_; }
  [[nodiscard]] kernel::Language language() const override { return kernel::Language::llvm_ir; }
  [[nodiscard]] Result<std::string> compiler_identity() override;
  [[nodiscard]] std::vector<std::string> compile_options(const kernel::KernelSpec& spec) const override;
  [[nodiscard]] Result<backend::Binary> compile(const kernel::SourceText& source,
                                                const kernel::KernelSpec& spec) override;
  [[nodiscard]] Result<std::shared_ptr<backend::LoadedKernel>> load(const std::vector<std::byte>& binary,
                                                                    const kernel::KernelSpec& spec) override;
  [[nodiscard]] std::int64_t workspace_bytes(const kernel::KernelSpec& spec,
                                             const backend::LaunchArgs& args) const override;
  [[nodiscard]] Result<void> run(backend::LoadedKernel& kernel, const kernel::KernelSpec& spec,
                                 const backend::LaunchArgs& args) override;
  [[nodiscard]] Result<double> measure(Stream stream, const std::function<Result<void>()>& queue) override;

 private:
  backend::DeviceFacts facts_;
};

}  // namespace flashspan::cpu
