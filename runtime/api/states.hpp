// states.hpp -- what a Mask and a Score hold: program, data, and the memory that the data may own.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "codegen/mask/bindings.hpp"
#include "codegen/mask/program.hpp"
#include "flashspan/core/types.hpp"

namespace flashspan {

struct MaskState {
  mask::Program program;  ///< simplified
  mask::Bindings bindings;
  /// Memory owned by the mask (copies on a device, converted inputs), kept alive as long as the mask.
  std::vector<std::shared_ptr<void>> owned;
  /// Set by builders that checked their tensors against a shape: calls must agree in batch, heads and lengths.
  std::optional<AttentionShape> bound_shape;
};

struct ScoreState {
  mask::Program program;
  mask::Bindings bindings;
  std::vector<std::shared_ptr<void>> owned;
};

}  // namespace flashspan
