#include "runtime/cuda/cuda_backend.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/backend/workspace_check.hpp"
#include "runtime/cuda/cuda_kernel.hpp"
#include "runtime/cuda/launch_arguments.hpp"
#include "runtime/cuda/launch_grids.hpp"
#include "runtime/cuda/nvrtc_compiler.hpp"
#include "runtime/cuda/program_code.hpp"
#include "runtime/cuda/stream_timer.hpp"
#include "runtime/cuda/tensor_maps.hpp"
#include "runtime/cuda/workspace_layout.hpp"

namespace flashspan::cuda {
namespace {

using backend::LaunchArgs;
using kernel::KernelSpec;

/// Everything about a call that is settled, and checked, before its first kernel is queued.
struct PreparedCall {
  LaunchGrids grids;
  flashspan_device::AttentionParameters attention;  ///< its plan and delta stand in the caller's workspace
  flashspan_device::ProgramArguments mask;
  flashspan_device::ProgramCode code;  ///< of an interpreted mask
  flashspan_device::ProgramArguments score;
  flashspan_device::ScoreGradientArguments score_gradients;
  flashspan_device::TensorMaps maps;  ///< of the hopper family
  std::int64_t ticket_bytes = 0;      ///< to be zeroed before a forward that cuts rows into portions
};

/// Error: unsupported, workspace_too_small, device_error.
Result<void> prepare(const DriverApi& driver, const KernelSpec& spec, const LaunchArgs& args, PreparedCall& call) {
  const PlanSize size = plan_size(spec, args);
  auto grids = launch_grids(spec, args.shape, size);
  if (!grids) return grids.error();
  if (args.planned) grids->plan_program = grids->plan_tiles = 0;
  const WorkspaceLayout layout = workspace_layout(spec, args.shape, size, score_sums(args));
  if (auto large = backend::check_workspace(args.workspace, args.workspace_bytes, layout.bytes); !large) return large;
  const auto mask = program_arguments("mask", args.mask_program, args.mask_bindings);
  if (!mask) return mask.error();
  const auto score = program_arguments("score", args.score_program, args.score_bindings);
  if (!score) return score.error();
  call.grids = *grids;
  call.attention = attention_parameters(spec, args, size, layout);
  call.ticket_bytes = layout.tickets.bytes;
  call.mask = *mask;
  call.score = *score;
  call.score_gradients = score_gradient_arguments(args, layout);
  if (spec.lowering == mask::LoweringKind::interpreted) {
    const auto code = program_code(*args.mask_program);
    if (!code) return code.error();
    call.code = *code;
    call.mask.code = code_place(args.workspace, layout);
  }
  if (spec.family != kernel::KernelFamily::hopper) return {};
  return describe_inputs(driver, spec, args, call.maps);
}

/// The attention kernel's blocks and threads. A block of the hopper family takes item after item, one block a
/// processor, and has a warpgroup that only copies.
struct BlockShape {
  std::int64_t most_blocks;
  int threads;
};
BlockShape block_shape(const KernelSpec& spec, int processors) {
  constexpr int copying_warps = 4;
  switch (spec.family) {
    case kernel::KernelFamily::mma:
      break;
    case kernel::KernelFamily::hopper:
      return {processors, (spec.tile.num_warps + copying_warps) * threads_per_warp};
  }
  return {std::numeric_limits<std::int64_t>::max(), spec.tile.num_warps * threads_per_warp};
}

/// Queues the kernels of the score gradients, in the order that ScoreGradientRun describes.
Result<void> launch_score_gradients(const CudaKernel& kernel, const KernelSpec& spec, const LaunchArgs& args,
                                    PreparedCall& call) {
  using Run = flashspan_device::ScoreGradientRun;
  std::array<void*, 4> arguments{&call.attention, &call.mask, &call.score, &call.score_gradients};
  const std::int64_t element_blocks = score_element_blocks(call.score_gradients);
  if (element_blocks == 0) return {};
  const auto over_elements = [&](EntryPoint entry) {
    return kernel.launch(entry, element_blocks, flashspan_device::score_element_threads, args.stream, arguments);
  };
  const auto sum = [&](Run run) -> Result<void> {
    if (call.grids.backward_score_sum == 0) return {};
    call.score_gradients.run = run;
    return kernel.launch(EntryPoint::backward_score_sum, call.grids.backward_score_sum, score_sum_threads(spec),
                         args.stream, arguments);
  };
  if (auto queued = over_elements(EntryPoint::backward_score_clear); !queued) return queued;
  if (!args.deterministic) return sum(Run::add);
  if (auto queued = sum(Run::measure); !queued) return queued;
  if (auto queued = sum(Run::add_in_units); !queued) return queued;
  return over_elements(EntryPoint::backward_score_round);
}

/// Queued like a kernel.
Result<void> zero_tickets(const DriverApi& driver, const PreparedCall& call, Stream stream) {
  if (call.ticket_bytes == 0) return {};
  const auto tickets = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(call.attention.split.tickets));
  return check(driver, "cuMemsetD8Async",
               driver.memset_d8_async(tickets, 0, static_cast<std::size_t>(call.ticket_bytes),
                                      static_cast<CUstream>(stream.handle)));
}

class CudaBackend final : public backend::Backend {
 public:
  CudaBackend(const CudaDevice& device, backend::DeviceFacts facts, NvrtcSearch search)
      : device_(device), facts_(std::move(facts)), compiler_(std::move(search)) {}

  [[nodiscard]] const backend::DeviceFacts& facts() const override { return facts_; }
  [[nodiscard]] kernel::Language language() const override { return kernel::Language::cuda; }

  [[nodiscard]] Result<std::string> compiler_identity() override { return compiler_.identity(); }

  [[nodiscard]] Result<std::string> compiler_description() override {
    const auto compiler = compiler_.get();
    if (!compiler) return compiler.error();
    return (*compiler)->description();
  }

  [[nodiscard]] std::vector<std::string> compile_options(const KernelSpec& spec) const override {
    return NvrtcCompiler::options_of_output(spec.target.arch);
  }

  [[nodiscard]] bool takes_binaries_of_other_compilers() const override { return true; }

  [[nodiscard]] Result<backend::Binary> compile(const kernel::SourceText& source, const KernelSpec& spec) override {
    const auto compiler = compiler_.get();
    if (!compiler) return compiler.error();
    return (*compiler)->compile(source, spec.target.arch);
  }

  [[nodiscard]] Result<std::shared_ptr<backend::LoadedKernel>> load(const std::vector<std::byte>& binary,
                                                                    const KernelSpec& spec) override {
    if (device_.driver == nullptr) return no_device();
    auto loaded = CudaKernel::load(device_, binary, spec);
    if (!loaded) return loaded.error();
    return std::shared_ptr<backend::LoadedKernel>(*std::move(loaded));
  }

  [[nodiscard]] bool is_capturing(Stream stream) const override {
    if (device_.driver == nullptr) return false;
    const ContextScope scope(device_);
    int status = stream_capture_status_none;
    const CUresult code = device_.driver->stream_is_capturing(static_cast<CUstream>(stream.handle), &status);
    // An error counts as a capture: the legacy stream cannot be asked while another stream that waits for it captures.
    return code != cuda_success || status != stream_capture_status_none;
  }

  [[nodiscard]] std::int64_t workspace_bytes(const KernelSpec& spec, const LaunchArgs& args) const override {
    return workspace_layout(spec, args.shape, plan_size(spec, args), score_sums(args)).bytes;
  }

  [[nodiscard]] Result<void> run(backend::LoadedKernel& kernel, const KernelSpec& spec,
                                 const LaunchArgs& args) override;
  [[nodiscard]] Result<double> measure(Stream stream, const std::function<Result<void>()>& queue) override;

 private:
  [[nodiscard]] Error no_device() const {
    return Error{ErrorCode::no_device, "device", "none: compiling for " + to_string(facts_.target.arch) + " only",
                 "a CUDA device", ""};
  }

  CudaDevice device_;  ///< without a driver: compile only
  backend::DeviceFacts facts_;
  NvrtcOnDemand compiler_;
};

Result<void> CudaBackend::run(backend::LoadedKernel& kernel, const KernelSpec& spec, const LaunchArgs& args) {
  if (device_.driver == nullptr) return no_device();
  const ContextScope scope(device_);
  if (!scope.entered()) return scope.entered();
  PreparedCall call{};
  if (const auto prepared = prepare(*device_.driver, spec, args, call); !prepared) return prepared;
  if (auto zeroed = zero_tickets(*device_.driver, call, args.stream); !zeroed) return zeroed;
  const auto& loaded = static_cast<const CudaKernel&>(kernel);
  const LaunchGrids& grids = call.grids;
  if (grids.plan_program != 0) {
    std::array<void*, 2> arguments{&call.code, &call.mask};
    auto queued = loaded.launch(EntryPoint::plan_program, grids.plan_program, flashspan_device::max_instructions,
                                args.stream, arguments);
    if (!queued) return queued;
  }
  const auto [most_blocks, threads] = block_shape(spec, facts_.processors);
  const std::int64_t sink_blocks = args.sink_gradient.given() ? grids.backward_sink : 0;
  struct Step {
    EntryPoint entry;
    std::int64_t blocks;  // 0: not launched
    int threads;
  };
  // Sums are rounded by a block a tile; a pass of its own has the others' blocks.
  constexpr int rounding_threads = 256;
  const std::int64_t query_gradient_blocks =
      spec.two_passes ? std::min(grids.backward_query_gradient, most_blocks) : grids.backward_query_gradient;
  const std::array<Step, 8> steps{
      {{EntryPoint::plan_tiles, grids.plan_tiles, plan_threads},
       {EntryPoint::forward, std::min(grids.forward, most_blocks), threads},
       {EntryPoint::backward_delta, grids.backward_delta, delta_threads},
       {EntryPoint::backward_sink, sink_blocks, delta_threads},
       {EntryPoint::backward_dq, grids.backward_dq, threads},
       {EntryPoint::backward_dkdv, grids.backward_dkdv, threads},
       {EntryPoint::backward_tiles, std::min(grids.backward_tiles, most_blocks), threads},
       {EntryPoint::backward_query_gradient, query_gradient_blocks, spec.two_passes ? threads : rounding_threads}}};
  // Kernels that take fewer, as the planner's and those without maps, do not look at the last ones.
  std::array<void*, 4> arguments{&call.attention, &call.mask, &call.score, &call.maps};
  for (const Step& step : steps) {
    if (step.blocks == 0) continue;
    if (auto queued = loaded.launch(step.entry, step.blocks, step.threads, args.stream, arguments); !queued) {
      return queued;
    }
  }
  return launch_score_gradients(loaded, spec, args, call);
}

Result<double> CudaBackend::measure(Stream stream, const std::function<Result<void>()>& queue) {
  if (device_.driver == nullptr) return no_device();
  const ContextScope scope(device_);
  if (!scope.entered()) return scope.entered().error();
  return stream_milliseconds(*device_.driver, static_cast<CUstream>(stream.handle), queue);
}

}  // namespace

Result<std::unique_ptr<backend::Backend>> make_cuda_backend(const CudaDevice& device, NvrtcSearch search) {
  auto facts = device.facts();
  if (!facts) return facts.error();
  int version = 0;
  const CUresult code = device.driver->driver_get_version(&version);
  if (code != cuda_success) return driver_error(*device.driver, "cuDriverGetVersion", code);
  search.newest_major = version / 1000;
  return std::unique_ptr<backend::Backend>(new CudaBackend(device, *std::move(facts), std::move(search)));
}

std::unique_ptr<backend::Backend> make_compile_only_backend(Arch arch, NvrtcSearch search) {
  backend::DeviceFacts facts;
  facts.device = Device{DeviceKind::cuda, 0};
  facts.target = kernel::Target{DeviceKind::cuda, arch};
  facts.name = to_string(arch);
  facts.detail = "no device: compiles only";
  return std::make_unique<CudaBackend>(CudaDevice{}, std::move(facts), std::move(search));
}

}  // namespace flashspan::cuda
