// simplify.hpp -- rewrites a Program into an equal, smaller one: constants folded, identities removed,
// operands of commutative operations in a fixed order, unused declarations dropped.
#pragma once

#include "codegen/mask/program.hpp"

namespace flashspan::mask {

[[nodiscard]] Program simplify(const Program& program);

}  // namespace flashspan::mask
