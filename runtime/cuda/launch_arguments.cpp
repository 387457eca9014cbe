#include "runtime/cuda/launch_arguments.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <type_traits>

namespace flashspan::cuda {
namespace {

using flashspan_device::AttentionParameters;
using flashspan_device::LookupTensor;
using flashspan_device::ProgramArguments;
using flashspan_device::TensorArgument;
using flashspan_device::TileEntry;
using flashspan_device::TilePlanArguments;

static_assert(std::is_trivially_copyable_v<AttentionParameters> && std::is_trivially_copyable_v<ProgramArguments>,
              "kernel arguments are copied as bytes");
static_assert(flashspan_device::max_lookup_rank == max_tensor_rank);
static_assert(flashspan_device::max_score_gradient_rank == max_tensor_rank);
static_assert(flashspan_device::max_score_gradients == flashspan_device::max_lookup_tensors);

/// [B, H, S, D] or, without the last axis, [B, H, S].
TensorArgument tensor_argument(const TensorView& view) {
  return TensorArgument{view.data, view.strides[0], view.strides[1], view.strides[2]};
}

/// [H].
TensorArgument head_argument(const TensorView& view) { return TensorArgument{view.data, 0, view.strides[0], 0}; }

Error too_many(const char* role, const char* what, std::size_t got, int takes) {
  return Error{ErrorCode::unsupported, std::string(role) + " " + what, std::to_string(got),
               "at most " + std::to_string(takes) + " on CUDA", ""};
}

Result<LookupTensor> lookup_tensor(const std::string& name, const TensorView& view) {
  LookupTensor tensor{};
  tensor.data = view.data;
  for (int axis = 0; axis < view.rank; ++axis) {
    const std::int64_t extent = view.shape[static_cast<std::size_t>(axis)];
    if (extent > std::numeric_limits<int>::max()) {
      return Error{ErrorCode::unsupported, name,
                   std::to_string(extent) + " elements along axis " + std::to_string(axis),
                   "at most 2147483647 along an axis", ""};
    }
    tensor.extent[axis] = static_cast<int>(extent);
    tensor.stride[axis] = view.strides[static_cast<std::size_t>(axis)];
  }
  return tensor;
}

/// Points the parameters at the parts of the workspace that the call has.
void place_in_workspace(AttentionParameters& parameters, const kernel::KernelSpec& spec, void* workspace,
                        const PlanSize& size, const WorkspaceLayout& layout) {
  const auto at = [workspace](const WorkspacePart& part) { return part_address(workspace, part); };
  if (spec.direction == Direction::backward) {
    parameters.delta = static_cast<float*>(at(layout.delta));
    parameters.shifted_lse = static_cast<float*>(at(layout.shifted_lse));
    parameters.query_gradient_sums = static_cast<float*>(at(layout.query_gradient_sums));
  }
  if (layout.split.portions > 0) {
    parameters.split = {static_cast<float*>(at(layout.partials)), static_cast<int*>(at(layout.tickets)),
                        static_cast<int>(layout.split.warps)};
  }
  if (spec.lowering == mask::LoweringKind::none) return;
  const auto lists = [&](const ListParts& parts, const WorkspacePart& bits) {
    return TilePlanArguments{static_cast<int*>(at(parts.counts)), static_cast<TileEntry*>(at(parts.entries)),
                             static_cast<int*>(at(parts.order)),  static_cast<unsigned*>(at(bits)),
                             static_cast<int>(layout.bit_slots),  static_cast<int>(size.batch),
                             static_cast<int>(size.heads)};
  };
  parameters.by_query = lists(layout.by_query, layout.query_bits);
  if (spec.direction == Direction::backward) parameters.by_key = lists(layout.by_key, layout.key_bits);
  int* const counters = static_cast<int*>(at(layout.counters));
  parameters.next_item = reinterpret_cast<unsigned*>(counters);
  parameters.scratch = {.shares = static_cast<unsigned long long*>(at(layout.shares)),
                        .undecided = static_cast<unsigned*>(at(layout.undecided)),
                        .counters = counters,
                        .counter_count = static_cast<int>(layout.counters.bytes / std::int64_t{sizeof(*counters)}),
                        .slots_taken = counters + 1,
                        .groups_listed = counters + 2,
                        .open_tiles = counters + 2 + 2 * size.lists()};
}

/// Query heads that work at a time: those of as many key heads as the L2 cache holds keys and values of, half of the
/// cache of the smallest GPU that has a persistent kernel (50 MB) being left to queries and results.
int section_heads(const AttentionShape& shape, std::int64_t element_bytes) {
  constexpr std::int64_t cache_bytes = std::int64_t{32} << 20;
  const std::int64_t row_bytes = (shape.head_dim_qk + shape.head_dim_v) * element_bytes;
  const std::int64_t key_heads = cache_bytes / std::max<std::int64_t>(shape.kv_len * row_bytes, 1);
  const std::int64_t group = shape.kv_heads > 0 ? shape.query_heads / shape.kv_heads : 1;
  const std::int64_t all = shape.batch * shape.query_heads;
  return static_cast<int>(
      std::clamp<std::int64_t>(std::max<std::int64_t>(key_heads, 1) * group, 1, std::max<std::int64_t>(all, 1)));
}

/// Bits of the largest addend in fixed point that leave any sum within 63 bits: an element has at most one addend for
/// every pair and lookup, and a score has fewer lookups than nodes.
int sum_bits(const AttentionShape& shape, const mask::Program& score) {
  constexpr int most_bits = 62;
  int addend_bits = 0;
  const auto nodes = static_cast<std::int64_t>(score.nodes().size());
  for (const std::int64_t size : {shape.batch, shape.query_heads, shape.q_len, shape.kv_len, nodes}) {
    addend_bits += static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1)) - 1));
  }
  return std::max(most_bits - addend_bits, 1);
}

}  // namespace

AttentionParameters attention_parameters(const kernel::KernelSpec& spec, const backend::LaunchArgs& args,
                                         const PlanSize& size, const WorkspaceLayout& layout) {
  AttentionParameters parameters{};
  parameters.query = tensor_argument(args.query);
  parameters.key = tensor_argument(args.key);
  parameters.value = tensor_argument(args.value);
  parameters.out = tensor_argument(args.out);
  parameters.out_gradient = tensor_argument(args.out_gradient);
  parameters.query_gradient = tensor_argument(args.query_gradient);
  parameters.key_gradient = tensor_argument(args.key_gradient);
  parameters.value_gradient = tensor_argument(args.value_gradient);
  parameters.lse = tensor_argument(args.lse);
  parameters.lse_gradient = tensor_argument(args.lse_gradient);
  parameters.sink = head_argument(args.sink);
  parameters.sink_gradient = head_argument(args.sink_gradient);
  parameters.batch = static_cast<int>(args.shape.batch);
  parameters.query_heads = static_cast<int>(args.shape.query_heads);
  parameters.kv_heads = static_cast<int>(args.shape.kv_heads);
  parameters.q_len = static_cast<int>(args.shape.q_len);
  parameters.kv_len = static_cast<int>(args.shape.kv_len);
  parameters.scale = args.scale;
  parameters.statistics_rows = static_cast<int>(statistics_rows(spec, args.shape));
  parameters.section_heads = section_heads(args.shape, size_in_bytes(spec.dtype));
  place_in_workspace(parameters, spec, args.workspace, size, layout);
  return parameters;
}

Result<ProgramArguments> program_arguments(const char* role, const mask::Program* program,
                                           const mask::Bindings* bindings) {
  ProgramArguments arguments{};
  if (program == nullptr) return arguments;
  const std::size_t tensors = program->tensors().size();
  const std::size_t scalars = program->scalars().size();
  if (tensors > flashspan_device::max_lookup_tensors) {
    return too_many(role, "tensors", tensors, flashspan_device::max_lookup_tensors);
  }
  if (scalars > flashspan_device::max_scalars) {
    return too_many(role, "scalars", scalars, flashspan_device::max_scalars);
  }
  const std::size_t bound_tensors = bindings == nullptr ? 0 : bindings->tensors.size();
  const std::size_t bound_scalars = bindings == nullptr ? 0 : bindings->scalars.size();
  if (bound_tensors != tensors || bound_scalars != scalars) {
    return Error{ErrorCode::bad_argument, std::string(role) + " bindings",
                 std::to_string(bound_tensors) + " tensors and " + std::to_string(bound_scalars) + " scalars",
                 std::to_string(tensors) + " tensors and " + std::to_string(scalars) + " scalars", ""};
  }
  for (std::size_t i = 0; i < tensors; ++i) {
    const auto tensor = lookup_tensor(program->tensors()[i].name, bindings->tensors[i]);
    if (!tensor) return tensor.error();
    arguments.tensors[i] = *tensor;
  }
  for (std::size_t i = 0; i < scalars; ++i) {
    arguments.integers[i] = bindings->scalars[i].integer;
    arguments.reals[i] = bindings->scalars[i].real;
  }
  return arguments;
}

flashspan_device::ScoreGradientArguments score_gradient_arguments(const backend::LaunchArgs& args,
                                                                  const WorkspaceLayout& layout) {
  flashspan_device::ScoreGradientArguments arguments{};
  auto* sums = static_cast<unsigned long long*>(part_address(args.workspace, layout.score_sums));
  for (const TensorView& view : args.score_gradients) {
    flashspan_device::ScoreGradient& gradient = arguments.of[arguments.count++];
    gradient.result = static_cast<float*>(view.data);
    gradient.rank = view.rank;
    gradient.elements = view.element_count();
    for (int axis = 0; axis < view.rank; ++axis) {
      gradient.extent[axis] = static_cast<int>(view.shape[static_cast<std::size_t>(axis)]);
      gradient.stride[axis] = view.strides[static_cast<std::size_t>(axis)];
    }
    if (!args.deterministic) continue;
    gradient.sums = sums;
    sums += gradient.elements;
  }
  if (args.score_program != nullptr) arguments.sum_bits = sum_bits(args.shape, *args.score_program);
  return arguments;
}

flashspan_device::ProgramCode* code_place(void* workspace, const WorkspaceLayout& layout) {
  return static_cast<flashspan_device::ProgramCode*>(part_address(workspace, layout.code));
}

}  // namespace flashspan::cuda
