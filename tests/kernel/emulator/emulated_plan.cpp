// emulated_plan.cpp -- see emulated_plan.hpp.
#include "tests/kernel/emulator/emulated_plan.hpp"

#include <array>

#include "codegen/kernel/emit_cuda.hpp"
#include "runtime/cuda/launch_arguments.hpp"
#include "runtime/cuda/launch_grids.hpp"
#include "tests/kernel/emulator/emulated_kernel.hpp"

namespace flashspan::test {
namespace {

kernel::KernelSpec spec_of(const PlanRequest& request) {
  kernel::KernelSpec spec;
  spec.direction = request.direction;
  spec.target = {DeviceKind::cuda, {90, 0}};
  spec.dtype = DType::bf16;
  spec.head_dim_qk = spec.head_dim_v = 64;
  spec.lowering = mask::LoweringKind::bit_tiles;
  spec.mask = request.program->to_signature();
  spec.tile = request.tile;
  spec.two_passes = request.two_passes;
  return spec;
}

/// The planner alone: the attention kernels take far longer to compile.
Result<EmulatedKernel> compile_planner(const kernel::KernelSpec& spec) {
  auto source = kernel::emit_cuda(spec);
  if (!source) return source.error();
  source->programs.erase(source->programs.begin());
  return EmulatedKernel::compile(*source);
}

}  // namespace

EmulatedPlan take_plan(const flashspan_device::AttentionParameters& parameters, const cuda::PlanSize& size,
                       const kernel::KernelSpec& spec) {
  const auto take = [&size](const flashspan_device::TilePlanArguments& from, long long rows, long long across) {
    EmulatedLists lists;
    if (from.entries == nullptr) return lists;
    lists.rows = rows;
    lists.across = across;
    lists.lists = size.lists();
    lists.counts.assign(from.counts, from.counts + lists.lists * rows);
    lists.entries.assign(from.entries, from.entries + lists.lists * rows * across);
    lists.order.assign(from.order, from.order + lists.lists * rows);
    return lists;
  };
  EmulatedPlan plan;
  plan.by_query = take(parameters.by_query, size.query_tiles, size.key_tiles);
  plan.by_key = take(parameters.by_key, size.key_tiles, size.query_tiles);
  plan.bit_slots = parameters.by_query.bit_slots;
  const auto bits_of = [&](const flashspan_device::TilePlanArguments& from, int rows) {
    return std::vector<unsigned>(from.bits, from.bits + std::int64_t{plan.bit_slots} * rows * 4);
  };
  const bool backward = spec.direction == Direction::backward;
  if (!backward || spec.two_passes) plan.query_bits = bits_of(parameters.by_query, spec.tile.block_m);
  if (backward) plan.key_bits = bits_of(parameters.by_key, spec.tile.block_n);
  plan.next_item = *parameters.next_item;
  return plan;
}

Result<EmulatedPlan> plan_emulated(const PlanRequest& request) {
  const kernel::KernelSpec spec = spec_of(request);
  const auto kernel = compile_planner(spec);
  if (!kernel) return kernel.error();
  backend::LaunchArgs args;
  args.shape = request.shape;
  args.mask_program = request.program;
  args.mask_bindings = request.bindings;
  const cuda::PlanSize size = cuda::plan_size(spec, args);
  const auto grids = cuda::launch_grids(spec, args.shape, size);
  if (!grids) return grids.error();
  const cuda::WorkspaceLayout layout = cuda::workspace_layout(spec, args.shape, size);
  std::vector<std::byte> workspace(static_cast<std::size_t>(layout.bytes), request.held);
  args.workspace = workspace.data();
  auto parameters = cuda::attention_parameters(spec, args, size, layout);
  if (request.bit_slots) parameters.by_query.bit_slots = *request.bit_slots;
  auto mask = cuda::program_arguments("mask", args.mask_program, args.mask_bindings);
  if (!mask) return mask.error();
  const std::array<void*, 2> arguments{&parameters, &*mask};
  for (int time = 0; time < request.times && grids->plan_tiles != 0; ++time) {
    const std::string wrong =
        kernel->run(kernel::entry_plan_tiles, grids->plan_tiles, cuda::plan_threads, arguments, request.order);
    if (!wrong.empty()) {
      return Error{ErrorCode::device_error, kernel::entry_plan_tiles, "a failure", "a clean run", wrong};
    }
  }
  return take_plan(parameters, size, spec);
}

}  // namespace flashspan::test
