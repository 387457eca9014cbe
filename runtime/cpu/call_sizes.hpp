// call_sizes.hpp -- the sizes that planner, layout and kernels derive from one call: tiles, padding, plan sharing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/backend/backend.hpp"

namespace flashspan::cpu {

/// Columns of packed operands are padded to whole vectors of this many floats.
inline constexpr std::int64_t vector_columns = 16;

[[nodiscard]] constexpr std::int64_t ceil_divide(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
[[nodiscard]] constexpr std::int64_t padded(std::int64_t columns) {
  return ceil_divide(columns, vector_columns) * vector_columns;
}

struct CallSizes {
  AttentionShape shape;
  std::int64_t block_m = 0, block_n = 0;
  std::int64_t q_tiles = 0, k_tiles = 0;
  std::int64_t qk_columns = 0, v_columns = 0;  ///< head dims, padded
  std::int64_t group = 1;                      ///< query heads per key/value head
  bool planned = false;                        ///< false: every tile is visited and full
  std::int64_t plan_batch = 1, plan_heads = 1;
  std::int64_t score_elements = 0;  ///< of all score gradients together

  CallSizes(const kernel::KernelSpec& spec, const backend::LaunchArgs& args)
      : shape(args.shape),
        block_m(spec.tile.block_m),
        block_n(spec.tile.block_n),
        q_tiles(ceil_divide(shape.q_len, block_m)),
        k_tiles(ceil_divide(shape.kv_len, block_n)),
        qk_columns(padded(shape.head_dim_qk)),
        v_columns(padded(shape.head_dim_v)),
        group(shape.kv_heads == 0 ? 1 : shape.query_heads / shape.kv_heads),
        planned(spec.lowering != mask::LoweringKind::none) {
    for (const TensorView& gradient : args.score_gradients) score_elements += gradient.element_count();
    if (!planned || args.mask_program == nullptr) return;
    const mask::VariableSet set = args.mask_program->dependencies();
    if ((set & mask::set_of(mask::Variable::b)) != 0) plan_batch = shape.batch;
    if ((set & mask::set_of(mask::Variable::h)) != 0) plan_heads = shape.query_heads;
  }

  [[nodiscard]] std::int64_t rows_of(std::int64_t q_tile) const {
    return std::min(block_m, shape.q_len - q_tile * block_m);
  }
  [[nodiscard]] std::int64_t cols_of(std::int64_t k_tile) const {
    return std::min(block_n, shape.kv_len - k_tile * block_n);
  }
  /// Row of the plan that (b, h) uses.
  [[nodiscard]] std::int64_t plan_row(std::int64_t b, std::int64_t h) const {
    return (plan_batch == 1 ? 0 : b) * plan_heads + (plan_heads == 1 ? 0 : h);
  }
};

}  // namespace flashspan::cpu
