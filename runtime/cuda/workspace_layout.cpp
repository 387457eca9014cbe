#include "runtime/cuda/workspace_layout.hpp"

#include <algorithm>
#include <cstddef>

#include "codegen/kernel/tile_config.hpp"
#include "templates/attention/parameters.cuh"

namespace flashspan::cuda {
namespace {

constexpr std::int64_t part_alignment = 256;

std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
std::int64_t align_up(std::int64_t value) { return divide_up(value, part_alignment) * part_alignment; }

std::int64_t patch_count(std::int64_t tiles) { return divide_up(tiles, flashspan_device::patch_side); }

/// TileEntry::mask has 24 bits, one of them the sign.
constexpr std::int64_t most_bit_slots = (std::int64_t{1} << 23) - 1;

/// Whether a kernel reads bit tiles of its plan. Ranges say all that bits would.
bool reads_bits(const kernel::KernelSpec& spec) {
  using mask::LoweringKind;
  const bool hopper = spec.family == kernel::KernelFamily::hopper;
  if (spec.direction == Direction::forward) return !(hopper && spec.lowering == LoweringKind::row_ranges);
  return spec.two_passes || spec.lowering == LoweringKind::bit_tiles ||
         (hopper && spec.lowering == LoweringKind::expression);
}

}  // namespace

std::int64_t PlanSize::patches() const { return patch_count(query_tiles) * patch_count(key_tiles); }

std::int64_t PlanSize::row_groups(Direction direction) const {
  return patch_count(query_tiles) + (direction == Direction::backward ? patch_count(key_tiles) : 0);
}

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

SplitSize split_size(const kernel::KernelSpec& spec, const AttentionShape& shape) {
  using flashspan_device::least_portion_tiles;
  using flashspan_device::portions_wanted;
  static_assert(portions_wanted == kernel::fewest_whole_rows, "a table of portions holds every split call's rows");
  if (!spec.split_rows) return {};
  SplitSize size;
  size.rows = shape.batch * shape.query_heads * divide_up(shape.q_len, spec.tile.block_m);
  const std::int64_t key_tiles = divide_up(shape.kv_len, spec.tile.block_n);
  // A portion is at least as long as a fair share of all tiles, and as the least; the last of a row may be shorter.
  size.portions = std::min(portions_wanted + size.rows, size.rows * divide_up(key_tiles, least_portion_tiles));
  constexpr std::int64_t rows_per_warp = 16;
  size.warps = std::min<std::int64_t>(spec.tile.num_warps, divide_up(shape.q_len, rows_per_warp));
  return size;
}

std::int64_t most_bit_bytes(const AttentionShape& shape, DType dtype) {
  constexpr std::int64_t least = std::int64_t{16} << 20;
  const std::int64_t query_bytes =
      shape.batch * shape.query_heads * shape.q_len * shape.head_dim_qk * size_in_bytes(dtype);
  return std::max(least, query_bytes / 2);
}

WorkspaceLayout workspace_layout(const kernel::KernelSpec& spec, const AttentionShape& shape, const PlanSize& plan,
                                 std::int64_t score_sums) {
  WorkspaceLayout layout;
  std::int64_t end = 0;
  const auto place = [&end](WorkspacePart& part, std::int64_t elements, std::int64_t element_bytes) {
    part = WorkspacePart{end, elements * element_bytes};
    end += align_up(part.bytes);
  };
  constexpr std::int64_t word = 4;  // bytes of i32, u32 and f32
  const auto place_lists = [&](ListParts& parts, std::int64_t rows, std::int64_t across) {
    place(parts.counts, plan.lists() * rows, word);
    place(parts.entries, plan.lists() * rows * across, sizeof(flashspan_device::TileEntry));
    place(parts.order, plan.lists() * rows, word);
  };
  const bool backward = spec.direction == Direction::backward;
  const bool interpreted = spec.lowering == mask::LoweringKind::interpreted;
  place(layout.code, interpreted ? 1 : 0, sizeof(flashspan_device::ProgramCode));
  place_lists(layout.by_query, plan.query_tiles, plan.key_tiles);
  if (backward) place_lists(layout.by_key, plan.key_tiles, plan.query_tiles);
  const std::int64_t bytes_per_query_slot = std::int64_t{4} * spec.tile.block_m * word;
  const std::int64_t bytes_per_key_slot = std::int64_t{4} * spec.tile.block_n * word;
  const bool by_query = !backward || spec.two_passes;
  if (reads_bits(spec)) {
    const std::int64_t bytes_per_slot =
        std::max(by_query ? bytes_per_query_slot : 0, backward ? bytes_per_key_slot : 0);
    layout.bit_slots = std::min({plan.tiles(), most_bit_bytes(shape, spec.dtype) / bytes_per_slot, most_bit_slots});
  }
  if (by_query) place(layout.query_bits, layout.bit_slots, bytes_per_query_slot);
  if (backward) place(layout.key_bits, layout.bit_slots, bytes_per_key_slot);
  place(layout.undecided, plan.lists() * plan.patches() * flashspan_device::words_per_patch, word);
  const bool has_rows = plan.lists() * (plan.query_tiles + plan.key_tiles) > 0;
  place(layout.shares, has_rows ? 1 : 0, sizeof(unsigned long long));
  place(layout.counters, has_rows ? 2 + plan.lists() * (2 + plan.row_groups(spec.direction)) : 0, word);
  layout.split = split_size(spec, shape);
  // Results, and two maxima and sums of each of 32 lanes.
  const std::int64_t partial_floats = std::int64_t{16} * kernel::padded_head_dim(spec.head_dim_v) + 128;
  place(layout.partials, layout.split.portions * layout.split.warps, partial_floats * word);
  place(layout.tickets, layout.split.rows * layout.split.warps, word);
  if (backward) {
    const std::int64_t lists = shape.batch * shape.query_heads;
    const std::int64_t rows = lists * statistics_rows(spec, shape);
    place(layout.delta, rows, word);
    if (spec.family == kernel::KernelFamily::hopper) {
      const std::int64_t query_tiles = divide_up(shape.q_len, spec.tile.block_m);
      constexpr std::int64_t warpgroup_rows = 64;
      const kernel::QueryGradientShare share = kernel::query_gradient_share(spec);
      place(layout.shifted_lse, rows, word);
      if (!spec.two_passes) {
        place(layout.query_gradient_sums, lists * query_tiles * share.sums * warpgroup_rows * share.columns, word);
      }
    }
  }
  place(layout.score_sums, score_sums, sizeof(unsigned long long));
  layout.bytes = end == 0 ? 0 : end + part_alignment - 1;
  return layout;
}

std::int64_t score_sums(const backend::LaunchArgs& args) {
  std::int64_t elements = 0;
  if (!args.deterministic) return elements;
  for (const TensorView& gradient : args.score_gradients) elements += gradient.element_count();
  return elements;
}

std::int64_t statistics_rows(const kernel::KernelSpec& spec, const AttentionShape& shape) {
  switch (spec.family) {
    case kernel::KernelFamily::mma:
      return shape.q_len;
    case kernel::KernelFamily::hopper:
      return divide_up(shape.q_len, spec.tile.block_m) * spec.tile.block_m;
  }
  return 0;
}

void* part_address(void* workspace, const WorkspacePart& part) {
  if (workspace == nullptr) return nullptr;
  const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(workspace));
  return static_cast<std::byte*>(workspace) + (align_up(address) - address) + part.offset;
}

}  // namespace flashspan::cuda
