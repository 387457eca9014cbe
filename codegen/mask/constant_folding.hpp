// constant_folding.hpp -- the value of an operation on constants.
#pragma once

#include <optional>
#include <vector>

#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// The constant that `node` is equal to when its operands are `operands`, all constants. Nothing for lookups and
/// loops, for a result that text cannot write (NaN, infinity), and for functions that back ends may round
/// differently (tanh, exp, log).
[[nodiscard]] std::optional<Node> fold(const Node& node, const std::vector<Node>& operands);

}  // namespace flashspan::mask
