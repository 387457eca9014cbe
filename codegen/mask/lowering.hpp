// lowering.hpp -- how a kernel will apply a mask, and why that way was chosen.
#pragma once

#include <string>

#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// Later lowerings (row ranges, column bounds, bit tiles) join here; each is a choice, never a different answer.
enum class LoweringKind {
  none,        ///< every pair is visible: no plan, no test
  expression,  ///< partial tiles evaluate the program per element
};

struct Lowering {
  LoweringKind kind = LoweringKind::expression;
  std::string reason;  ///< one line for `flashspan explain`; not part of any identity
};

[[nodiscard]] const char* to_string(LoweringKind kind);
[[nodiscard]] Lowering lower(const Program& simplified, Direction direction);

}  // namespace flashspan::mask
