// score_derivative.hpp -- d(modified score) / d(score) as another program, by symbolic differentiation.
#pragma once

#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// Scalars and looked-up tensors count as constants. min, max, abs and select take the derivative of the
/// branch chosen (at a tie: the first operand's; abs at 0: 0). The result keeps the declarations of `score`,
/// so one set of bindings serves both.
[[nodiscard]] Program derivative_by_score(const Program& score);

}  // namespace flashspan::mask
