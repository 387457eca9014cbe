// make_node.cpp -- see make_node.hpp.
#include "codegen/mask/make_node.hpp"

#include <utility>
#include <vector>

namespace flashspan::mask {
namespace {

Node node_of(Op op, ValueType type, std::vector<NodeId> operands) {
  Node node;
  node.op = op;
  node.type = type;
  node.operands = std::move(operands);
  return node;
}

}  // namespace

Node make_unary(const Program& program, Op op, NodeId operand) {
  return node_of(op, op == Op::to_real ? ValueType::real : program.node(operand).type, {operand});
}

Node make_binary(const Program& program, Op op, NodeId left, NodeId right) {
  const bool compares = op == Op::less || op == Op::less_equal || op == Op::equal || op == Op::not_equal;
  return node_of(op, compares ? ValueType::boolean : program.node(left).type, {left, right});
}

Node make_select(const Program& program, NodeId condition, NodeId if_true, NodeId if_false) {
  return node_of(Op::select, program.node(if_true).type, {condition, if_true, if_false});
}

}  // namespace flashspan::mask
