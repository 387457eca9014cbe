// differentiate_scores.hpp -- probabilities and score gradients of one tile, as every pass of the backward needs them.
#pragma once

#include "runtime/cpu/score_tile.hpp"
#include "runtime/cpu/workspace.hpp"

namespace flashspan::cpu {

struct DifferentiatedTile {
  DifferentiatedTile(const CallSizes& sizes, bool with_score)
      : probabilities(sizes.block_m * sizes.block_n),
        gradients(sizes.block_m * sizes.block_n),
        derivatives(with_score ? sizes.block_m * sizes.block_n : 0),
        visibility(sizes) {}

  /// [block_m, block_n] each.
  AlignedFloats probabilities, gradients, derivatives;
  TileVisibility visibility;
};

/// Fills `tile` from the packed operands of `workspace`. With a score program, derive(scores, derivatives) is called on
/// the scores before the program, and gives what the gradients of the modified scores are multiplied with.
template <typename Derive>
void differentiate_scores(const TileContext& context, const Workspace& workspace, const TilePosition& at,
                          DifferentiatedTile& tile, const Derive& derive) {
  const CallSizes& sizes = context.sizes;
  const TileFunctions& functions = context.functions;
  const std::int64_t rows = sizes.rows_of(at.q_tile);
  const std::int64_t cols = sizes.cols_of(at.key.index);
  const std::int64_t kv_head = at.h / sizes.group;
  float* scores = tile.probabilities.data();
  multiply_scores(context, workspace.query.tile(at.b, at.h, at.q_tile),
                  workspace.key_columns.tile(at.b, kv_head, at.key.index), rows, cols, scores);
  if (functions.score_tile != nullptr) {
    derive(scores, tile.derivatives.data());
    functions.score_tile(context.score, at.b, at.h, at.q_tile * sizes.block_m, at.key.index * sizes.block_n, rows, cols,
                         scores, scores);
  }
  functions.gemm(workspace.out_gradient.tile(at.b, at.h, at.q_tile), sizes.v_columns, 1,
                 workspace.value_columns.tile(at.b, kv_head, at.key.index), sizes.block_n, tile.gradients.data(),
                 sizes.block_n, rows, sizes.shape.head_dim_v, padded(cols), 0);
  const float* lse = workspace.lse.tile(at.b, at.h, at.q_tile);
  tile.visibility.set(context, at);
  tile.visibility.hide_empty_rows(sizes, at, lse);
  const auto gradient = tile.visibility.masked() ? functions.gradient_masked : functions.gradient_full;
  gradient(scores, tile.gradients.data(), tile.derivatives.data(), rows, cols, tile.visibility.words(), lse,
           workspace.delta.tile(at.b, at.h, at.q_tile));
}

}  // namespace flashspan::cpu
