// fake_backend.hpp -- a back end that compiles nothing and counts everything.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/backend/backend.hpp"

namespace flashspan::testing {

/// Kernels of one FakeBackend that are loaded now, and the most that there ever were at once.
struct LiveKernels {
  std::atomic<int> now = 0;
  std::atomic<int> most = 0;
};

class FakeKernel final : public backend::LoadedKernel {
 public:
  explicit FakeKernel(std::shared_ptr<LiveKernels> live) : live_(std::move(live)) {
    const int now = ++live_->now;
    int most = live_->most;
    while (most < now && !live_->most.compare_exchange_weak(most, now)) {
    }
  }
  ~FakeKernel() override { --live_->now; }
  FakeKernel(const FakeKernel&) = delete;
  FakeKernel& operator=(const FakeKernel&) = delete;

  void follow_launches() override { followed = true; }
  [[nodiscard]] bool may_unload() const override { return !busy; }

  std::string text;  ///< of the binary it was loaded from
  bool followed = false;
  std::atomic<bool> busy = false;

 private:
  std::shared_ptr<LiveKernels> live_;
};

class FakeBackend final : public backend::Backend {
 public:
  FakeBackend() {
    facts_.name = "fake";
    facts_.target.kind = DeviceKind::cpu;
  }

  [[nodiscard]] const backend::DeviceFacts& facts() const override { return facts_; }
  [[nodiscard]] kernel::Language language() const override { return emitted; }
  [[nodiscard]] Result<std::string> compiler_identity() override {
    if (compiler.empty()) return Error{ErrorCode::missing_component, "compiler", "none", "one", ""};
    return compiler;
  }
  [[nodiscard]] std::vector<std::string> compile_options(const kernel::KernelSpec& /*spec*/) const override {
    ++texts;
    return options;
  }

  [[nodiscard]] bool takes_binaries_of_other_compilers() const override { return takes_binaries_of_others; }

  [[nodiscard]] Result<backend::Binary> compile(const kernel::SourceText& /*source*/,
                                                const kernel::KernelSpec& spec) override {
    ++compiles;
    std::this_thread::sleep_for(compile_time);
    if (on_compile) on_compile();
    if (throws) throw std::runtime_error("thrown by the compiler");
    if (spilling == spec.family) {
      return Error{ErrorCode::kernel_spills, "attention_forward", "8 bytes of spills", "none", ""};
    }
    if (compile_failures > 0) {
      --compile_failures;
      return Error{ErrorCode::compile_failed, "kernel", "an error", "a correct kernel", "line 7: no such thing"};
    }
    backend::Binary binary;
    binary.modules.resize(1);
    for (char character : spec.summary()) binary.modules[0].bytes.push_back(static_cast<std::byte>(character));
    binary.report.milliseconds = 12.5;
    binary.report.entries = {{"first", 40, 100, 0, 0}, {"second", 72, 50, 8, 16}};
    return binary;
  }

  [[nodiscard]] Result<std::shared_ptr<backend::LoadedKernel>> load(const std::vector<std::byte>& binary,
                                                                    const kernel::KernelSpec& /*spec*/) override {
    ++loads;
    if (load_failures > 0) {
      --load_failures;
      return Error{ErrorCode::unsupported, "cuLibraryLoadData", "CUDA_ERROR_NO_BINARY_FOR_GPU", "a cubin", ""};
    }
    if (out_of_memory) return Error{ErrorCode::device_error, "cuLibraryLoadData", "CUDA_ERROR_OUT_OF_MEMORY", "", ""};
    auto kernel = std::make_shared<FakeKernel>(live);
    for (std::byte byte : binary) kernel->text += static_cast<char>(byte);
    return std::shared_ptr<backend::LoadedKernel>(std::move(kernel));
  }

  [[nodiscard]] bool is_capturing(Stream stream) const override {
    return stream.handle != nullptr && stream.handle == captured_stream;
  }
  [[nodiscard]] std::int64_t workspace_bytes(const kernel::KernelSpec& /*spec*/,
                                             const backend::LaunchArgs& /*args*/) const override {
    return workspace;
  }
  [[nodiscard]] Result<void> run(backend::LoadedKernel& /*kernel*/, const kernel::KernelSpec& spec,
                                 const backend::LaunchArgs& args) override {
    ++runs;
    last_spec = spec;
    last_args = args;
    if (run_failures > 0) {
      --run_failures;
      return Error{ErrorCode::device_error, "cuLaunchKernelEx", "CUDA_ERROR_LAUNCH_FAILED", "a working device", ""};
    }
    return on_run ? on_run(spec, args) : Result<void>{};
  }
  /// The sum of what milliseconds_of() says of each run.
  [[nodiscard]] Result<double> measure(Stream /*stream*/, const std::function<Result<void>()>& queue) override {
    const int before = runs;
    if (auto done = queue(); !done) return done.error();
    return milliseconds_of ? (runs - before) * milliseconds_of(last_spec) : 0.0;
  }

  std::atomic<int> compiles = 0;
  std::atomic<int> loads = 0;
  std::atomic<int> runs = 0;
  mutable std::atomic<int> texts = 0;  ///< times that a text was about to be looked up: once per cold path
  std::atomic<int> compile_failures = 0;
  std::atomic<int> load_failures = 0;  ///< times that the binary is refused
  std::atomic<bool> out_of_memory = false;
  std::atomic<int> run_failures = 0;
  std::atomic<bool> throws = false;
  std::shared_ptr<LiveKernels> live = std::make_shared<LiveKernels>();
  std::chrono::milliseconds compile_time{0};
  std::function<void()> on_compile;  ///< called inside every compile
  std::function<Result<void>(const kernel::KernelSpec&, const backend::LaunchArgs&)> on_run;
  std::function<double(const kernel::KernelSpec&)> milliseconds_of;  ///< one run
  kernel::Language emitted = kernel::Language::llvm_ir;
  std::optional<kernel::KernelFamily> spilling;  ///< kernels of this family do not fit their registers
  std::string compiler = "fake 1.0";             ///< empty: there is none
  bool takes_binaries_of_others = false;
  std::vector<std::string> options{"-O2"};
  std::int64_t workspace = 0;
  void* captured_stream = nullptr;  ///< null: none
  kernel::KernelSpec last_spec;
  backend::LaunchArgs last_args;

 private:
  backend::DeviceFacts facts_;
};

}  // namespace flashspan::testing
