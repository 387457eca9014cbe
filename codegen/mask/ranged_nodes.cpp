// ranged_nodes.cpp -- see ranged_nodes.hpp.
#include "codegen/mask/ranged_nodes.hpp"

#include <utility>

#include "codegen/mask/interval_arithmetic.hpp"
#include "codegen/mask/make_node.hpp"

namespace flashspan::mask {

// The simplifier may add more nodes than the one asked for.
NodeId RangedNodes::remember(NodeId id) {
  for (auto next = ranges_.size(); next < program_.nodes().size(); ++next) {
    const Node& node = program_.nodes()[next];
    VariableSet set = node.op == Op::variable ? set_of(static_cast<Variable>(node.symbol)) : 0u;
    for (const NodeId operand : node.operands) set |= dependencies(operand);
    ranges_.push_back(node.type == ValueType::integer ? value_range(node, ranges_) : whole_range);
    dependencies_.push_back(set);
  }
  return id;
}

NodeId RangedNodes::add(Node node) { return remember(rewriter_.add(std::move(node))); }

// Leaves go through the simplifier too, which counts the nodes it has seen.
NodeId RangedNodes::leaf(Op op, ValueType type, std::int64_t value, int symbol) {
  Node node;
  node.op = op;
  node.type = type;
  node.integer = value;
  node.symbol = symbol;
  return add(std::move(node));
}

NodeId RangedNodes::integer(std::int64_t value) { return leaf(Op::integer_constant, ValueType::integer, value, 0); }
NodeId RangedNodes::boolean(bool value) { return leaf(Op::boolean_constant, ValueType::boolean, value ? 1 : 0, 0); }
NodeId RangedNodes::variable(Variable variable) {
  return leaf(Op::variable, ValueType::integer, 0, static_cast<int>(variable));
}

NodeId RangedNodes::unary(Op op, NodeId operand) { return add(make_unary(program_, op, operand)); }

NodeId RangedNodes::binary(Op op, NodeId left, NodeId right) { return add(make_binary(program_, op, left, right)); }

NodeId RangedNodes::minimum(NodeId left, NodeId right) {
  if (range(left).hi <= range(right).lo) return left;
  if (range(right).hi <= range(left).lo) return right;
  return binary(Op::minimum, left, right);
}

NodeId RangedNodes::maximum(NodeId left, NodeId right) {
  if (range(left).lo >= range(right).hi) return left;
  if (range(right).lo >= range(left).hi) return right;
  return binary(Op::maximum, left, right);
}

NodeId RangedNodes::select(NodeId condition, NodeId if_true, NodeId if_false) {
  return add(make_select(program_, condition, if_true, if_false));
}

NodeId RangedNodes::less(NodeId left, NodeId right) {
  if (range(left).hi < range(right).lo) return boolean(true);
  if (range(left).lo >= range(right).hi) return boolean(false);
  return binary(Op::less, left, right);
}

NodeId RangedNodes::less_equal(NodeId left, NodeId right) {
  if (range(left).hi <= range(right).lo) return boolean(true);
  if (range(left).lo > range(right).hi) return boolean(false);
  return binary(Op::less_equal, left, right);
}

NodeId RangedNodes::clamped(NodeId node, Interval bounds) {
  return minimum(maximum(node, integer(bounds.lo)), integer(bounds.hi));
}

bool RangedNodes::is_true(NodeId id) const {
  return program_.node(id).op == Op::boolean_constant && program_.node(id).integer != 0;
}

bool RangedNodes::is_false(NodeId id) const {
  return program_.node(id).op == Op::boolean_constant && program_.node(id).integer == 0;
}

}  // namespace flashspan::mask
