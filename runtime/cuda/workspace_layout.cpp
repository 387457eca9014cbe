#include "runtime/cuda/workspace_layout.hpp"

#include <cstddef>

namespace flashspan::cuda {
namespace {

constexpr std::int64_t part_alignment = 256;

std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
std::int64_t align_up(std::int64_t value) { return divide_up(value, part_alignment) * part_alignment; }

}  // namespace

PlanSize plan_size(const kernel::KernelSpec& spec, const backend::LaunchArgs& args) {
  PlanSize size;
  if (spec.lowering == mask::LoweringKind::none) return size;
  const mask::VariableSet inputs = args.mask_program == nullptr ? 0 : args.mask_program->dependencies();
  if ((inputs & set_of(mask::Variable::b)) != 0) size.batch = args.shape.batch;
  if ((inputs & set_of(mask::Variable::h)) != 0) size.heads = args.shape.query_heads;
  size.query_tiles = divide_up(args.shape.q_len, spec.tile.block_m);
  size.key_tiles = divide_up(args.shape.kv_len, spec.tile.block_n);
  return size;
}

WorkspaceLayout workspace_layout(const kernel::KernelSpec& spec, const AttentionShape& shape, const PlanSize& plan) {
  WorkspaceLayout layout;
  std::int64_t end = 0;
  const auto place = [&end](WorkspacePart& part, std::int64_t elements) {
    part = WorkspacePart{end, elements * 4};  // i32 and f32 alike
    end += align_up(part.bytes);
  };
  const std::int64_t lists = plan.batch * plan.heads;
  place(layout.by_query_counts, lists * plan.query_tiles);
  place(layout.by_query_tiles, lists * plan.query_tiles * plan.key_tiles);
  if (spec.direction == Direction::backward) {
    place(layout.by_key_counts, lists * plan.key_tiles);
    place(layout.by_key_tiles, lists * plan.key_tiles * plan.query_tiles);
    place(layout.delta, shape.batch * shape.query_heads * shape.q_len);
  }
  layout.bytes = end == 0 ? 0 : end + part_alignment - 1;
  return layout;
}

void* part_address(void* workspace, const WorkspacePart& part) {
  if (workspace == nullptr) return nullptr;
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(workspace));
  return static_cast<std::byte*>(workspace) + (align_up(address) - address) + part.offset;
}

}  // namespace flashspan::cuda
