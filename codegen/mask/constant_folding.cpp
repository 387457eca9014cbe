// constant_folding.cpp -- see constant_folding.hpp.
#include "codegen/mask/constant_folding.hpp"

#include <cmath>

#include "codegen/mask/arithmetic.hpp"

namespace flashspan::mask {
namespace {

std::optional<Node> boolean_constant(bool value) {
  Node node;
  node.op = Op::boolean_constant;
  node.type = ValueType::boolean;
  node.integer = value ? 1 : 0;
  return node;
}

std::optional<Node> integer_constant(std::int64_t value) {
  Node node;
  node.op = Op::integer_constant;
  node.type = ValueType::integer;
  node.integer = value;
  return node;
}

std::optional<Node> real_constant(float value) {
  if (!std::isfinite(value)) return std::nullopt;
  Node node;
  node.op = Op::real_constant;
  node.type = ValueType::real;
  node.real = value;
  return node;
}

template <typename Number>
std::optional<Node> fold_comparison(Op op, Number a, Number b) {
  if (op == Op::less) return boolean_constant(a < b);
  if (op == Op::less_equal) return boolean_constant(a <= b);
  if (op == Op::equal) return boolean_constant(a == b);
  if (op == Op::not_equal) return boolean_constant(a != b);
  return std::nullopt;
}

// b is a itself for operations with one operand.
std::optional<Node> fold_integers(Op op, std::int64_t a, std::int64_t b) {
  if (op == Op::add) return integer_constant(wrapping_add(a, b));
  if (op == Op::subtract) return integer_constant(wrapping_subtract(a, b));
  if (op == Op::multiply) return integer_constant(wrapping_multiply(a, b));
  if (op == Op::minimum) return integer_constant(minimum(a, b));
  if (op == Op::maximum) return integer_constant(maximum(a, b));
  if (op == Op::negate) return integer_constant(wrapping_negate(a));
  if (op == Op::absolute) return integer_constant(wrapping_absolute(a));
  if (op == Op::floor_divide) return integer_constant(floor_divide(a, b));
  if (op == Op::modulo) return integer_constant(floor_modulo(a, b));
  if (op == Op::to_real) return real_constant(static_cast<float>(a));
  return fold_comparison(op, a, b);
}

std::optional<Node> fold_reals(Op op, float a, float b) {
  if (op == Op::add) return real_constant(a + b);
  if (op == Op::subtract) return real_constant(a - b);
  if (op == Op::multiply) return real_constant(a * b);
  if (op == Op::divide) return real_constant(divide(a, b));
  if (op == Op::minimum) return real_constant(minimum(a, b));
  if (op == Op::maximum) return real_constant(maximum(a, b));
  if (op == Op::negate) return real_constant(-a);
  if (op == Op::absolute) return real_constant(std::fabs(a));
  if (op == Op::sqrt) return real_constant(std::sqrt(a));  // IEEE 754 demands the nearest result
  return fold_comparison(op, a, b);
}

std::optional<Node> fold_booleans(Op op, bool a, bool b) {
  if (op == Op::logical_and) return boolean_constant(a && b);
  if (op == Op::logical_or) return boolean_constant(a || b);
  if (op == Op::logical_not) return boolean_constant(!a);
  return std::nullopt;
}

}  // namespace

std::optional<Node> fold(const Node& node, const std::vector<Node>& operands) {
  if (node.op == Op::lookup || node.op == Op::any) return std::nullopt;
  if (node.op == Op::select) return operands[0].integer != 0 ? operands[1] : operands[2];
  const Node& a = operands.front();
  const Node& b = operands.back();
  switch (a.type) {
    case ValueType::boolean:
      return fold_booleans(node.op, a.integer != 0, b.integer != 0);
    case ValueType::integer:
      return fold_integers(node.op, a.integer, b.integer);
    case ValueType::real:
      return fold_reals(node.op, static_cast<float>(a.real), static_cast<float>(b.real));
  }
  return std::nullopt;
}

}  // namespace flashspan::mask
