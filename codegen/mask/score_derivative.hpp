// score_derivative.hpp -- the derivative of a modified score, by the score or by a looked-up value, as another program.
#pragma once

#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// Scalars and looked-up tensors count as constants. min, max, abs and select take the derivative of the
/// branch chosen (at a tie: the first operand's; abs at 0: 0). The result keeps the declarations of `score`,
/// so one set of bindings serves both.
[[nodiscard]] Program derivative_by_score(const Program& score);
/// The same by the value of one lookup, a node of `score`; all other lookups, and the score, count as constants.
[[nodiscard]] Program derivative_by_lookup(const Program& score, NodeId lookup);

}  // namespace flashspan::mask
