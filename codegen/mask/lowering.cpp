// lowering.cpp -- see lowering.hpp.
#include "codegen/mask/lowering.hpp"

namespace flashspan::mask {

const char* to_string(LoweringKind kind) {
  switch (kind) {
    case LoweringKind::none:
      return "none";
    case LoweringKind::expression:
      return "expression";
  }
  return "unknown";
}

Lowering lower(const Program& simplified, Direction direction) {
  const Node& root = simplified.node(simplified.root());
  if (root.op == Op::boolean_constant && root.integer != 0) {
    return {.kind = LoweringKind::none, .reason = "every pair is visible, whatever the data"};
  }
  return {.kind = LoweringKind::expression,
          .reason = std::string(to_string(direction)) +
                    ": tiles that interval analysis leaves open evaluate the mask element by element"};
}

}  // namespace flashspan::mask
