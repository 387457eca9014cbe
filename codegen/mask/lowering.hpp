// lowering.hpp -- how a kernel will apply a mask, and why that way was chosen.
#pragma once

#include <string>

#include "codegen/mask/program.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/lowering.hpp"

namespace flashspan::mask {

using flashspan::LoweringKind;

struct Lowering {
  LoweringKind kind = LoweringKind::expression;
  std::string reason;  ///< one line for `flashspan explain`; not part of any identity
};

/// True if a kernel that evaluates the program for a pair needs few registers for it: no loop, no division of integers,
/// few operations. Kernels of the largest tiles have none to spare.
[[nodiscard]] bool evaluates_in_few_registers(const Program& simplified);

/// The first that serves, in the order of LoweringKind; never row_ranges in the backward, whose kernels hold rows of
/// keys, and never interpreted, which is asked for.
[[nodiscard]] Lowering lower(const Program& simplified, Direction direction);
/// The one asked for. Error: unsupported, if it would not give the mask.
[[nodiscard]] Result<Lowering> lower_as(const Program& simplified, Direction direction, LoweringKind kind);

}  // namespace flashspan::mask
