// make_node.hpp -- a node from an operation and its operands, with the type that these give it; not added to anything.
// Program, Rewriter and RangedNodes each add such nodes in their own way.
#pragma once

#include "codegen/mask/program.hpp"

namespace flashspan::mask {

[[nodiscard]] Node make_unary(const Program& program, Op op, NodeId operand);
/// The result has the operands' type or, for a comparison, is a boolean.
[[nodiscard]] Node make_binary(const Program& program, Op op, NodeId left, NodeId right);
[[nodiscard]] Node make_select(const Program& program, NodeId condition, NodeId if_true, NodeId if_false);

}  // namespace flashspan::mask
