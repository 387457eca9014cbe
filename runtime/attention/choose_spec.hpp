// choose_spec.hpp -- from a checked call to its KernelSpec: the last pure step before a kernel is looked up.
#pragma once

#include <optional>
#include <string>

#include "codegen/kernel/kernel_spec.hpp"
#include "codegen/kernel/tile_config.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"
#include "runtime/attention/attention_call.hpp"

namespace flashspan::attention {

/// What decides a spec beside the programs.
struct SpecChoice {
  Direction direction = Direction::forward;
  kernel::Target target;
  DType dtype = DType::f32;
  int head_dim_qk = 0;
  int head_dim_v = 0;
  std::string score_gradients;  ///< as in KernelSpec
  bool aligned = true;
  bool few_rows = false;  ///< kernel::worth_splitting() of the call's shape
  kernel::FamilyNeeds needs;
  std::optional<TileConfig> tile;  ///< nothing: kernel::default_tile()
};

/// Error: unsupported, if no tile fits the head dims on the target; kernel::check_tile() of a tile that is asked for.
[[nodiscard]] Result<kernel::KernelSpec> choose_spec(const SpecChoice& choice, const BoundMask& mask,
                                                     const BoundScore* score);

/// How the rows of a call's tensors stand in memory.
struct RowPlacement {
  bool aligned = true;  ///< every row starts at a multiple of 16 bytes, and none at a lower address than the one before
  bool expanded = false;  ///< rows, heads or batches of a tensor stand at one address
};
[[nodiscard]] RowPlacement row_placement(const AttentionCall& call);

[[nodiscard]] const mask::Lowering& lowering_of(const BoundMask& mask, Direction direction);

}  // namespace flashspan::attention
