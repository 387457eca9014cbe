// backend.hpp -- Backend: what a device can do for us. Four verbs: compile, load, run, facts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codegen/kernel/kernel_spec.hpp"
#include "codegen/kernel/source_text.hpp"
#include "codegen/mask/bindings.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/log.hpp"
#include "flashspan/core/tensor.hpp"
#include "flashspan/core/types.hpp"

namespace flashspan::backend {

/// What we know about a device before using it.
struct DeviceFacts {
  Device device;
  kernel::Target target;
  std::string name;    ///< "NVIDIA H200", or the CPU's model name
  std::string detail;  ///< one line: driver version, vector width, ...
  std::string driver;  ///< version, "13.0"; empty where there is none
  std::int64_t memory_bytes = 0;
  int processors = 0;  ///< SMs, or threads that the CPU's tiles are spread over
};

/// What the compiler said about one entry point.
struct EntryReport {
  std::string name;
  int registers = 0;
  std::int64_t shared_bytes = 0;  ///< static
  std::int64_t spill_bytes = 0;   ///< stores + loads
  std::int64_t stack_bytes = 0;   ///< local memory
};

struct CompileReport {
  double milliseconds = 0;
  std::vector<EntryReport> entries;
  std::string log;  ///< warnings, whole
};

/// Machine code of one program: a cubin, or a relocatable object.
struct Module {
  std::string program;  ///< kernel::ProgramText::name
  std::vector<std::byte> bytes;
};

/// Machine code of a kernel.
struct Binary {
  std::vector<Module> modules;  ///< in the order of the source's programs
  CompileReport report;         ///< of all of them

  /// The modules one after another, as load() takes them and caches keep them.
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> joined;
    for (const Module& module : modules) joined.insert(joined.end(), module.bytes.begin(), module.bytes.end());
    return joined;
  }
};

/// Everything one call needs beside the kernel. Tensors are [B, H, S, D] views with any strides as long as D is
/// contiguous; lse and lse_gradient are [B, Hq, Sq] fp32, sink and sink_gradient [Hq] fp32.
struct LaunchArgs {
  AttentionShape shape;
  TensorView query, key, value, sink, out, lse;
  TensorView out_gradient, lse_gradient, query_gradient, key_gradient, value_gradient, sink_gradient;  // backward only
  std::vector<TensorView> score_gradients;  ///< backward: f32, as many and in the order of the spec's score_gradients
  bool deterministic = false;               ///< backward: score gradients are sums that no order changes
  float scale = 1;
  const mask::Program* mask_program = nullptr;
  const mask::Bindings* mask_bindings = nullptr;
  const mask::Program* score_program = nullptr;  ///< null: none
  const mask::Bindings* score_bindings = nullptr;
  void* workspace = nullptr;  ///< on the device
  std::int64_t workspace_bytes = 0;
  bool planned = false;  ///< the workspace holds the tile plan already, from a call of the same spec, sizes and mask
  Stream stream;
};

/// A module on a device, ready to launch. Unloads when destroyed, which may_unload() must allow while the device is in
/// use.
class LoadedKernel {
 public:
  LoadedKernel() = default;
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;
  virtual ~LoadedKernel() = default;

  /// Called before the first launch, if at all: from now on may_unload() is to have an answer.
  virtual void follow_launches() {}
  /// True if no launch is queued, running, or captured for a replay. Does not wait.
  [[nodiscard]] virtual bool may_unload() const { return true; }
};

/// One device. Thread-safe.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  [[nodiscard]] virtual const DeviceFacts& facts() const = 0;
  [[nodiscard]] virtual kernel::Language language() const = 0;
  /// What tells the compiler from others, e.g. "nvrtc 13 build 65be0db3..." or "llvm 19.1.7 znver5 +avx512f..."; part
  /// of every key. May change, once, with the first compile: that is when a compiler is opened, and only then is it
  /// certain which one serves. Error: missing_component if none is found.
  [[nodiscard]] virtual Result<std::string> compiler_identity() = 0;
  /// The same for people, with all that is known of its version. Opens the compiler. Error: missing_component.
  [[nodiscard]] virtual Result<std::string> compiler_description() { return compiler_identity(); }
  /// Options that compile() passes and its output depends on, without paths; part of every key.
  [[nodiscard]] virtual std::vector<std::string> compile_options(const kernel::KernelSpec& spec) const = 0;
  /// Whether a binary that another version of the compiler made of the same text, with the same options, serves too.
  [[nodiscard]] virtual bool takes_binaries_of_other_compilers() const { return false; }

  /// Error: compile_failed with the log in `detail`, kernel_spills.
  [[nodiscard]] virtual Result<Binary> compile(const kernel::SourceText& source, const kernel::KernelSpec& spec) = 0;
  /// `binary`: Binary::bytes(). Error: unsupported if it is this binary that the device does not take, so that another
  /// one may serve; device_error whatever else failed.
  [[nodiscard]] virtual Result<std::shared_ptr<LoadedKernel>> load(const std::vector<std::byte>& binary,
                                                                   const kernel::KernelSpec& spec) = 0;
  /// True while work on the stream is recorded for a graph instead of run: nothing may be loaded for a call on it.
  [[nodiscard]] virtual bool is_capturing(Stream /*stream*/) const { return false; }
  /// Bytes that run() needs in LaunchArgs::workspace; a pure function of spec and shape.
  [[nodiscard]] virtual std::int64_t workspace_bytes(const kernel::KernelSpec& spec, const LaunchArgs& args) const = 0;
  /// Queues the planner, unless args.planned, and the kernel(s) on args.stream. No allocation and no synchronisation
  /// (CUDA); the CPU returns when it is done.
  [[nodiscard]] virtual Result<void> run(LoadedKernel& kernel, const kernel::KernelSpec& spec,
                                         const LaunchArgs& args) = 0;
  /// Milliseconds that the device takes for what `queue` puts on the stream. Waits for it.
  /// Error: that of `queue`, and of the work itself.
  [[nodiscard]] virtual Result<double> measure(Stream stream, const std::function<Result<void>()>& queue) = 0;
};

}  // namespace flashspan::backend
