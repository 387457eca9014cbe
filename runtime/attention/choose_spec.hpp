// choose_spec.hpp -- from a checked call to its KernelSpec: the last pure step before a kernel is looked up.
#pragma once

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
  bool aligned = true;
  bool few_rows = false;  ///< kernel::worth_splitting() of the call's shape
  kernel::FamilyNeeds needs;
};

/// Error: unsupported, if no tile fits the head dims on the target.
[[nodiscard]] Result<kernel::KernelSpec> choose_spec(const SpecChoice& choice, const BoundMask& mask,
                                                     const BoundScore* score);

/// True if every row of every tensor of the call starts at a multiple of 16 bytes, and none at a lower address than the
/// one before.
[[nodiscard]] bool rows_aligned(const AttentionCall& call);
/// True if rows, heads or batches of a tensor of the call stand at one address.
[[nodiscard]] bool rows_expanded(const AttentionCall& call);

[[nodiscard]] const mask::Lowering& lowering_of(const BoundMask& mask, Direction direction);

}  // namespace flashspan::attention
