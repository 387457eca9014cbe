#include "runtime/cuda/cuda_backend.hpp"

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/cuda_kernel.hpp"
#include "runtime/cuda/launch_arguments.hpp"
#include "runtime/cuda/launch_grids.hpp"
#include "runtime/cuda/nvrtc_compiler.hpp"
#include "runtime/cuda/workspace_layout.hpp"

namespace flashspan::cuda {
namespace {

using backend::LaunchArgs;
using backend::TilePlan;
using kernel::KernelSpec;

/// Everything about a call that is settled, and checked, before its first kernel is queued.
struct PreparedCall {
  LaunchGrids grids;
  TilePlan plan;  ///< its lists, in the caller's workspace
  flashspan_device::AttentionParameters attention;
  flashspan_device::ProgramArguments mask;
  flashspan_device::ProgramArguments score;
};

TilePlan plan_in_workspace(const KernelSpec& spec, void* workspace, const PlanSize& size,
                           const WorkspaceLayout& layout) {
  TilePlan plan;
  plan.plan_batch = size.batch;
  plan.plan_heads = size.heads;
  if (spec.lowering == mask::LoweringKind::none) return plan;
  plan.by_query_counts = part_address(workspace, layout.by_query_counts);
  plan.by_query_tiles = part_address(workspace, layout.by_query_tiles);
  if (spec.direction == Direction::backward) {
    plan.by_key_counts = part_address(workspace, layout.by_key_counts);
    plan.by_key_tiles = part_address(workspace, layout.by_key_tiles);
  }
  return plan;
}

/// Error: unsupported, workspace_too_small.
Result<PreparedCall> prepare(const KernelSpec& spec, const LaunchArgs& args) {
  const PlanSize size = plan_size(spec, args);
  const auto grids = launch_grids(spec, args.shape, size);
  if (!grids) return grids.error();
  const WorkspaceLayout layout = workspace_layout(spec, args.shape, size);
  if (args.workspace_bytes < layout.bytes || (args.workspace == nullptr && layout.bytes > 0)) {
    return Error{ErrorCode::workspace_too_small, "workspace",
                 args.workspace == nullptr ? "none" : std::to_string(args.workspace_bytes) + " bytes",
                 "at least " + std::to_string(layout.bytes) + " bytes", ""};
  }
  const auto mask = program_arguments("mask", args.mask_program, args.mask_bindings);
  if (!mask) return mask.error();
  const auto score = program_arguments("score", args.score_program, args.score_bindings);
  if (!score) return score.error();
  const TilePlan plan = plan_in_workspace(spec, args.workspace, size, layout);
  void* delta = part_address(args.workspace, layout.delta);
  return PreparedCall{*grids, plan, attention_parameters(args, delta), *mask, *score};
}

/// One kernel of a call.
struct Step {
  EntryPoint entry;
  std::int64_t blocks;  ///< 0: not launched
  int threads;
};

Result<void> launch_steps(const CudaKernel& kernel, std::span<const Step> steps, Stream stream,
                          std::span<void*> arguments) {
  for (const Step& step : steps) {
    if (step.blocks == 0) continue;
    if (auto launched = kernel.launch(step.entry, step.blocks, step.threads, stream, arguments); !launched) {
      return launched;
    }
  }
  return {};
}

class CudaBackend final : public backend::Backend {
 public:
  CudaBackend(const CudaDevice& device, backend::DeviceFacts facts, NvrtcSearch search)
      : device_(device), facts_(std::move(facts)), compiler_(std::move(search)) {}

  [[nodiscard]] const backend::DeviceFacts& facts() const override { return facts_; }
  [[nodiscard]] kernel::Language language() const override { return kernel::Language::cuda; }

  [[nodiscard]] Result<std::string> compiler_identity() override {
    const auto compiler = compiler_.get();
    if (!compiler) return compiler.error();
    return (*compiler)->identity();
  }

  [[nodiscard]] std::vector<std::string> compile_options(const KernelSpec& spec) const override {
    return compiler_.options(spec.target.arch);
  }

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

  [[nodiscard]] std::int64_t workspace_bytes(const KernelSpec& spec, const LaunchArgs& args) const override {
    return workspace_layout(spec, args.shape, plan_size(spec, args)).bytes;
  }

  [[nodiscard]] Result<TilePlan> plan(backend::LoadedKernel& kernel, const KernelSpec& spec,
                                      const LaunchArgs& args) override;
  [[nodiscard]] Result<void> launch(backend::LoadedKernel& kernel, const KernelSpec& spec, const LaunchArgs& args,
                                    const TilePlan& plan) override;

 private:
  [[nodiscard]] Error no_device() const {
    return Error{ErrorCode::no_device, "device", "none: compiling for " + to_string(facts_.target.arch) + " only",
                 "a CUDA device", ""};
  }

  CudaDevice device_;  ///< without a driver: compile only
  backend::DeviceFacts facts_;
  mutable NvrtcOnDemand compiler_;
};

Result<TilePlan> CudaBackend::plan(backend::LoadedKernel& kernel, const KernelSpec& spec, const LaunchArgs& args) {
  if (device_.driver == nullptr) return no_device();
  auto call = prepare(spec, args);
  if (!call) return call.error();
  set_plan(call->attention, call->plan);
  const ContextScope scope(device_);
  if (!scope.entered()) return scope.entered().error();
  int by_key = 0;
  std::array<void*, 4> arguments{&call->attention, &call->mask, &call->score, &by_key};
  for (const std::int64_t blocks : {call->grids.plan_by_query, call->grids.plan_by_key}) {
    const Step step{EntryPoint::plan_tiles, blocks, plan_threads};
    const auto queued = launch_steps(static_cast<const CudaKernel&>(kernel), {&step, 1}, args.stream, arguments);
    if (!queued) return queued.error();
    by_key = 1;
  }
  return call->plan;
}

Result<void> CudaBackend::launch(backend::LoadedKernel& kernel, const KernelSpec& spec, const LaunchArgs& args,
                                 const TilePlan& plan) {
  if (device_.driver == nullptr) return no_device();
  auto call = prepare(spec, args);
  if (!call) return call.error();
  set_plan(call->attention, plan);
  const ContextScope scope(device_);
  if (!scope.entered()) return scope.entered();
  const LaunchGrids& grids = call->grids;
  const int threads = spec.tile.num_warps * threads_per_warp;
  const std::array<Step, 4> steps{{{EntryPoint::forward, grids.forward, threads},
                                   {EntryPoint::backward_delta, grids.backward_delta, delta_threads},
                                   {EntryPoint::backward_dq, grids.backward_dq, threads},
                                   {EntryPoint::backward_dkdv, grids.backward_dkdv, threads}}};
  std::array<void*, 3> arguments{&call->attention, &call->mask, &call->score};
  return launch_steps(static_cast<const CudaKernel&>(kernel), steps, args.stream, arguments);
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
