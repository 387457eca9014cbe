// simplify.hpp -- rewrites a Program into an equal, smaller one: constants folded, identities removed,
// operands of commutative operations in a fixed order, unused declarations dropped.
#pragma once

#include "codegen/mask/program.hpp"
#include "codegen/mask/rebuild.hpp"

namespace flashspan::mask {

/// Gives the same value as `program` for every point, data and scalars, bit for bit (save which NaN a NaN is).
/// Simplifying once more changes nothing.
[[nodiscard]] Program simplify(const Program& program, Declarations declarations = Declarations::drop_unused);

}  // namespace flashspan::mask
