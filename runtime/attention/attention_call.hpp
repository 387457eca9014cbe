// attention_call.hpp -- AttentionCall: one forward or backward call as the path from mask to launch sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codegen/mask/bindings.hpp"
#include "codegen/mask/lowering.hpp"
#include "codegen/mask/program.hpp"
#include "flashspan/core/tensor.hpp"
#include "flashspan/core/tile_config.hpp"
#include "flashspan/core/tile_plan.hpp"
#include "flashspan/core/types.hpp"

namespace flashspan::attention {

/// An axis of a looked-up tensor that the program indexes by nothing but bare variables (`doc[b, q]`): a call's size
/// then says how long the axis has to be, and a shorter one is a mistake rather than a wish for zeros.
struct AxisRule {
  int tensor = 0;  ///< index into the program's tensors
  int axis = 0;
  mask::VariableSet indexed_by = 0;
  bool exact = false;  ///< a longer axis is refused as well
};

/// A program with its data and with what follows from the program alone, so that a warm call derives nothing.
struct BoundProgram {
  mask::Program program;  ///< simplified
  mask::Bindings bindings;
  std::string signature;  ///< program.to_signature()
  std::vector<AxisRule> axis_rules;
};

struct BoundMask : BoundProgram {
  mask::Lowering forward_lowering;
  mask::Lowering backward_lowering;
  bool light = true;  ///< mask::evaluates_in_few_registers()
  /// Shapes that builders checked tensors against: calls must agree with each in batch, heads and lengths.
  std::vector<AttentionShape> bound_shapes;
};

struct BoundScore : BoundProgram {};

/// A result: the gradient of the score's tensor of that name.
struct ScoreGradient {
  std::string name;
  TensorView view;
};

/// As ForwardCall and BackwardCall of flashspan/attention.hpp; the gradients belong to the backward only.
struct AttentionCall {
  Direction direction = Direction::forward;
  TensorView query, key, value, sink, out, lse;
  TensorView out_gradient, lse_gradient;
  TensorView query_gradient, key_gradient, value_gradient, sink_gradient;
  std::vector<ScoreGradient> score_gradients;
  const BoundMask* mask = nullptr;    ///< never null
  const BoundScore* score = nullptr;  ///< null: none
  std::optional<float> scale;
  bool deterministic = false;
  void* workspace = nullptr;
  std::int64_t workspace_bytes = 0;
  TilePlan* plan = nullptr;  ///< null: plan, and tell nobody
  std::optional<TileConfig> tile;
  Stream stream;
};

}  // namespace flashspan::attention
