// choose_spec.cpp -- collects what changes the code: programs, head dims, dtype, alignment class and tile.
#include "runtime/attention/choose_spec.hpp"

#include <cstdint>

#include "codegen/kernel/resource_model.hpp"
#include "codegen/kernel/tile_config.hpp"
#include "runtime/attention/validate.hpp"

namespace flashspan::attention {

namespace {

constexpr std::int64_t copy_bytes = 16;  // the widest copy that the kernels use

void place_rows(const TensorView& view, RowPlacement& placement) {
  const std::int64_t element_bytes = size_in_bytes(view.dtype);
  if (reinterpret_cast<std::uintptr_t>(view.data) % copy_bytes != 0) placement.aligned = false;
  for (int axis = 0; axis + 1 < view.rank; ++axis) {
    const auto index = static_cast<std::size_t>(axis);
    const std::int64_t stride = view.strides[index];
    if (view.shape[index] <= 1) continue;  // never used
    if (stride < 0 || stride * element_bytes % copy_bytes != 0) placement.aligned = false;
    if (stride == 0) placement.expanded = true;
  }
}

/// Error: unsupported.
Result<kernel::KernelSpec> interpreted_spec(const kernel::KernelSpec& spec) {
  if (auto general = kernel::interpreted_of(spec)) return *std::move(general);
  if (!spec.score.empty()) {
    return Error{ErrorCode::unsupported, "score", "a score program with an interpreted mask",
                 "scores as they are: score programs are compiled into their kernels", ""};
  }
  return kernel::default_tile(spec, false).error();
}

/// The spec with the tile asked for in place of its own. Error: kernel::check_tile().
Result<kernel::KernelSpec> with_tile(kernel::KernelSpec spec, const std::optional<TileConfig>& tile) {
  if (!tile) return spec;
  spec.tile = *tile;
  if (auto legal = kernel::check_tile(spec); !legal) return legal.error();
  return spec;
}

}  // namespace

RowPlacement row_placement(const AttentionCall& call) {
  RowPlacement placement;
  const CallTensors tensors(call);
  for (const CallTensor& tensor : tensors.all()) {
    // Statistics are read by the element.
    if (tensor.view->rank == 4) place_rows(*tensor.view, placement);
  }
  return placement;
}

const mask::Lowering& lowering_of(const BoundMask& mask, Direction direction) {
  switch (direction) {
    case Direction::forward:
      return mask.forward_lowering;
    case Direction::backward:
      return mask.backward_lowering;
  }
  return mask.forward_lowering;
}

Result<kernel::KernelSpec> choose_spec(const SpecChoice& choice, const BoundMask& mask, const BoundScore* score) {
  kernel::KernelSpec spec;
  spec.direction = choice.direction;
  spec.target = choice.target;
  spec.dtype = choice.dtype;
  spec.head_dim_qk = choice.head_dim_qk;
  spec.head_dim_v = choice.head_dim_v;
  spec.mask = mask.signature;
  if (score != nullptr) spec.score = score->signature;
  spec.score_gradients = choice.score_gradients;
  spec.aligned = choice.aligned;
  if (lowering_of(mask, choice.direction).kind == mask::LoweringKind::interpreted) {
    auto general = interpreted_spec(spec);
    return general ? with_tile(*std::move(general), choice.tile) : general;
  }
  spec.family = kernel::choose_family(spec, choice.needs).family;
  spec.two_passes = kernel::takes_two_passes(spec, choice.needs);
  spec.lowering = kernel::served_lowering(spec, lowering_of(mask, choice.direction).kind);
  spec.split_rows = choice.few_rows && kernel::can_split_rows(spec);
  const auto tile = kernel::default_tile(spec, mask.light);
  if (!tile) return tile.error();
  spec.tile = *tile;
  return with_tile(std::move(spec), choice.tile);
}

}  // namespace flashspan::attention
