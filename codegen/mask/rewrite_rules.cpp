// rewrite_rules.cpp -- see rewrite_rules.hpp. Laws for reals hold for NaN, infinities and both zeros, so there
// are few: x * 0 is not 0, x + 0.0 is not x (if x is -0.0), and sums are not regrouped.
#include "codegen/mask/rewrite_rules.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "codegen/mask/constant_folding.hpp"
#include "codegen/mask/make_node.hpp"

namespace flashspan::mask {
namespace {

bool is_constant(const Node& node) {
  return node.op == Op::integer_constant || node.op == Op::real_constant || node.op == Op::boolean_constant;
}

// The order of operations in which operands of a commutative one are written; constants are last.
int rank(Op op) {
  constexpr int last = 1000;
  return op == Op::integer_constant || op == Op::real_constant || op == Op::boolean_constant ? last
                                                                                             : static_cast<int>(op);
}

// Minimum and maximum of reals tell their operands apart when one is a NaN or both are zeros.
bool is_commutative(const Node& node) {
  switch (node.op) {
    case Op::add:
    case Op::multiply:
    case Op::equal:
    case Op::not_equal:
    case Op::logical_and:
    case Op::logical_or:
      return true;
    case Op::minimum:
    case Op::maximum:
      return node.type == ValueType::integer;
    case Op::integer_constant:
    case Op::real_constant:
    case Op::boolean_constant:
    case Op::variable:
    case Op::scalar:
    case Op::loop_variable:
    case Op::lookup:
    case Op::subtract:
    case Op::negate:
    case Op::absolute:
    case Op::floor_divide:
    case Op::modulo:
    case Op::divide:
    case Op::tanh:
    case Op::exp:
    case Op::log:
    case Op::sqrt:
    case Op::to_real:
    case Op::select:
    case Op::less:
    case Op::less_equal:
    case Op::logical_not:
    case Op::any:
      break;
  }
  return false;
}

template <typename Value>
int sign_of_difference(Value left, Value right) {
  return left < right ? -1 : right < left ? 1 : 0;
}

}  // namespace

NodeId Rewriter::add(Node node) {
  if (is_commutative(node)) order_operands(node);
  std::optional<NodeId> replacement = fold_constants(node);
  switch (node.op) {
    case Op::add:
    case Op::subtract:
      replacement = replacement ? replacement : simplify_sum(node);
      break;
    case Op::multiply:
      replacement = replacement ? replacement : simplify_product(node);
      break;
    case Op::floor_divide:
    case Op::modulo:
    case Op::divide:
      replacement = replacement ? replacement : simplify_division(node);
      break;
    case Op::minimum:
    case Op::maximum:
      replacement = replacement ? replacement : simplify_extremum(node);
      break;
    case Op::negate:
    case Op::absolute:
      replacement = replacement ? replacement : simplify_sign(node);
      break;
    case Op::less:
    case Op::less_equal:
    case Op::equal:
    case Op::not_equal:
      replacement = replacement ? replacement : simplify_comparison(node);
      break;
    case Op::logical_and:
    case Op::logical_or:
      replacement = replacement ? replacement : simplify_junction(node);
      break;
    case Op::logical_not:
      replacement = replacement ? replacement : simplify_negation(node);
      break;
    case Op::select:
      replacement = replacement ? replacement : simplify_choice(node);
      break;
    case Op::any:
      replacement = replacement ? replacement : simplify_any(node);
      break;
    case Op::integer_constant:
    case Op::real_constant:
    case Op::boolean_constant:
    case Op::variable:
    case Op::scalar:
    case Op::loop_variable:
    case Op::lookup:
    case Op::tanh:
    case Op::exp:
    case Op::log:
    case Op::sqrt:
    case Op::to_real:
      break;
  }
  const NodeId result = replacement ? *replacement : program_.add(std::move(node));
  remember(result);
  return result;
}

NodeId Rewriter::unary(Op op, NodeId operand) { return add(make_unary(program_, op, operand)); }

NodeId Rewriter::binary(Op op, NodeId left, NodeId right) { return add(make_binary(program_, op, left, right)); }

void Rewriter::remember(NodeId node) {
  for (auto id = static_cast<NodeId>(depths_.size()); id <= node; ++id) {
    int depth = 0;
    for (const NodeId operand : program_.node(id).operands) {
      depth = std::max(depth, depths_[static_cast<std::size_t>(operand)] + 1);
    }
    depths_.push_back(depth);
  }
}

// a op b == b op a. The deeper operand comes first, so that chains lean to the left, where they print flat.
void Rewriter::order_operands(Node& node) const {
  if (compare(node.operands[1], node.operands[0]) < 0) std::swap(node.operands[0], node.operands[1]);
}

// Negative if `left` belongs before `right`; 0 only if they are one node or differ by nothing but loop numbers.
int Rewriter::compare(NodeId left, NodeId right) const {
  while (left != right) {
    const Node& a = program_.node(left);
    const Node& b = program_.node(right);
    int order = sign_of_difference(depths_[static_cast<std::size_t>(right)], depths_[static_cast<std::size_t>(left)]);
    if (order == 0) order = sign_of_difference(rank(a.op), rank(b.op));
    if (order == 0 && a.op != Op::any) order = sign_of_difference(a.symbol, b.symbol);
    if (order == 0) order = sign_of_difference(a.integer, b.integer);
    if (order == 0) order = sign_of_difference(a.real, b.real);
    if (order == 0) order = sign_of_difference(a.operands.size(), b.operands.size());
    if (order != 0) return order;
    const auto [first, second] = std::mismatch(a.operands.begin(), a.operands.end(), b.operands.begin());
    if (first == a.operands.end()) return 0;
    left = *first;
    right = *second;
  }
  return 0;
}

bool Rewriter::is_integer(NodeId node, std::int64_t value) const {
  return program_.node(node).op == Op::integer_constant && program_.node(node).integer == value;
}

bool Rewriter::is_real(NodeId node, float value) const {
  return program_.node(node).op == Op::real_constant &&
         std::bit_cast<std::uint32_t>(static_cast<float>(program_.node(node).real)) ==
             std::bit_cast<std::uint32_t>(value);
}

bool Rewriter::is_boolean(NodeId node, bool value) const {
  return program_.node(node).op == Op::boolean_constant && (program_.node(node).integer != 0) == value;
}

bool Rewriter::are_opposite(NodeId left, NodeId right) const {
  const auto negates = [&](NodeId one, NodeId other) {
    return program_.node(one).op == Op::logical_not && program_.node(one).operands[0] == other;
  };
  return negates(left, right) || negates(right, left);
}

bool Rewriter::uses_loop(NodeId node, int loop) const {
  std::vector<char> seen(static_cast<std::size_t>(node) + 1, 0);
  seen[static_cast<std::size_t>(node)] = 1;
  for (NodeId id = node; id >= 0; --id) {  // users stand behind their operands
    if (seen[static_cast<std::size_t>(id)] == 0) continue;
    const Node& used = program_.node(id);
    if (used.op == Op::loop_variable && used.symbol == loop) return true;
    for (const NodeId operand : used.operands) seen[static_cast<std::size_t>(operand)] = 1;
  }
  return false;
}

// An operation on constants is the constant that it gives.
std::optional<NodeId> Rewriter::fold_constants(const Node& node) {
  if (node.operands.empty()) return std::nullopt;
  std::vector<Node> operands;
  for (const NodeId id : node.operands) {
    if (!is_constant(program_.node(id))) return std::nullopt;
    operands.push_back(program_.node(id));
  }
  std::optional<Node> constant = fold(node, operands);
  if (!constant) return std::nullopt;
  return program_.add(*std::move(constant));
}

std::optional<NodeId> Rewriter::simplify_sum(const Node& node) {
  const NodeId a = node.operands[0];
  const NodeId b = node.operands[1];
  const bool is_sum = node.op == Op::add;
  if (is_integer(b, 0)) return a;                   // x + 0 == x - 0 == x
  if (is_real(b, is_sum ? -0.0f : 0.0f)) return a;  // x + -0.0 == x - 0.0 == x, x == -0.0 too
  if (node.type == ValueType::real) return std::nullopt;
  if (!is_sum && a == b) return program_.integer(0);             // x - x == 0, for integers
  if (!is_sum && is_integer(a, 0)) return unary(Op::negate, b);  // 0 - x == -x, for integers
  if (operand(node, 1).op == Op::negate) {                       // x + -y == x - y, x - -y == x + y, wrapping
    return binary(is_sum ? Op::subtract : Op::add, a, operand(node, 1).operands[0]);
  }
  if (is_sum && operand(node, 0).op == Op::negate) return binary(Op::subtract, b, operand(node, 0).operands[0]);
  const Node inner = operand(node, 0);  // a copy: adding nodes moves them
  if (inner.op == Op::add && is_constant(program_.node(inner.operands[1])) && is_constant(operand(node, 1))) {
    const NodeId constant = binary(node.op, inner.operands[1], b);
    return binary(Op::add, inner.operands[0], constant);  // (x + c) + d == x + (c + d), wrapping
  }
  return std::nullopt;
}

std::optional<NodeId> Rewriter::simplify_product(const Node& node) {
  const NodeId a = node.operands[0];
  const NodeId b = node.operands[1];
  if (is_integer(b, 1) || is_real(b, 1.0f)) return a;  // x * 1 == x
  if (is_integer(b, 0)) return b;                      // x * 0 == 0, for integers
  return std::nullopt;
}

std::optional<NodeId> Rewriter::simplify_division(const Node& node) {
  const NodeId a = node.operands[0];
  const NodeId b = node.operands[1];
  if (node.op == Op::divide) {
    if (is_real(b, 1.0f)) return a;                                      // x / 1.0 == x
    if (is_real(b, 0.0f) || is_real(b, -0.0f)) return program_.real(0);  // x / 0 == 0
    return std::nullopt;
  }
  if (is_integer(b, 0) || is_integer(a, 0)) return program_.integer(0);          // x // 0 == x % 0 == 0, 0 // x == 0
  if (is_integer(b, 1)) return node.op == Op::modulo ? program_.integer(0) : a;  // x % 1 == 0, x // 1 == x
  if (is_integer(b, -1)) {                                                       // x % -1 == 0, x // -1 == -x
    return node.op == Op::modulo ? program_.integer(0) : unary(Op::negate, a);
  }
  return std::nullopt;
}

// min(x, x) == max(x, x) == x
std::optional<NodeId> Rewriter::simplify_extremum(const Node& node) {
  if (node.operands[0] == node.operands[1]) return node.operands[0];
  return std::nullopt;
}

std::optional<NodeId> Rewriter::simplify_sign(const Node& node) {
  const Node& inner = operand(node, 0);
  if (node.op == Op::negate) {
    if (inner.op == Op::negate) return inner.operands[0];  // --x == x
    if (inner.op == Op::subtract && node.type == ValueType::integer) {
      return binary(Op::subtract, inner.operands[1], inner.operands[0]);  // -(x - y) == y - x, for integers
    }
    return std::nullopt;
  }
  if (inner.op == Op::absolute) return node.operands[0];                      // abs(abs(x)) == abs(x)
  if (inner.op == Op::negate) return unary(Op::absolute, inner.operands[0]);  // abs(-x) == abs(x)
  return std::nullopt;
}

// x == x, x <= x are true and x != x, x < x are false, for integers (a NaN is not equal to itself).
std::optional<NodeId> Rewriter::simplify_comparison(const Node& node) {
  if (node.operands[0] != node.operands[1] || operand(node, 0).type == ValueType::real) return std::nullopt;
  return program_.boolean(node.op == Op::equal || node.op == Op::less_equal);
}

std::optional<NodeId> Rewriter::simplify_junction(const Node& node) {
  const NodeId a = node.operands[0];
  const NodeId b = node.operands[1];
  const bool is_and = node.op == Op::logical_and;
  if (is_boolean(b, is_and)) return a;                       // x & True == x | False == x
  if (is_boolean(b, !is_and)) return b;                      // x & False == False, x | True == True
  if (a == b) return a;                                      // x & x == x | x == x
  if (are_opposite(a, b)) return program_.boolean(!is_and);  // x & ~x == False, x | ~x == True
  return std::nullopt;
}

std::optional<NodeId> Rewriter::simplify_negation(const Node& node) {
  const Node& inner = operand(node, 0);
  if (inner.op == Op::logical_not) return inner.operands[0];  // ~~x == x
  const auto exchanged = [&](Op op) { return binary(op, inner.operands[1], inner.operands[0]); };
  if (inner.op == Op::equal) return exchanged(Op::not_equal);  // ~(x == y) == (x != y), for a NaN too
  if (inner.op == Op::not_equal) return exchanged(Op::equal);
  const bool of_integers = !inner.operands.empty() && program_.node(inner.operands[0]).type == ValueType::integer;
  if (inner.op == Op::less && of_integers) return exchanged(Op::less_equal);  // ~(x < y) == (y <= x), not for a NaN
  if (inner.op == Op::less_equal && of_integers) return exchanged(Op::less);
  return std::nullopt;
}

std::optional<NodeId> Rewriter::simplify_choice(const Node& node) {
  const NodeId condition = node.operands[0];
  const NodeId if_true = node.operands[1];
  const NodeId if_false = node.operands[2];
  if (is_boolean(condition, true)) return if_true;       // where(True, x, y) == x
  if (is_boolean(condition, false)) return if_false;     // where(False, x, y) == y
  if (if_true == if_false) return if_true;               // where(c, x, x) == x
  if (program_.node(condition).op == Op::logical_not) {  // where(~c, x, y) == where(c, y, x)
    Node exchanged = node;
    exchanged.operands = {program_.node(condition).operands[0], if_false, if_true};
    return add(std::move(exchanged));
  }
  if (is_boolean(if_true, true)) return binary(Op::logical_or, condition, if_false);    // where(c, True, x) == c | x
  if (is_boolean(if_false, false)) return binary(Op::logical_and, condition, if_true);  // where(c, x, False) == c & x
  if (is_boolean(if_true, false)) {                                                     // where(c, False, x) == ~c & x
    return binary(Op::logical_and, unary(Op::logical_not, condition), if_false);
  }
  if (is_boolean(if_false, true)) {  // where(c, x, True) == ~c | x
    return binary(Op::logical_or, unary(Op::logical_not, condition), if_true);
  }
  return std::nullopt;
}

std::optional<NodeId> Rewriter::simplify_any(const Node& node) {
  const NodeId begin = node.operands[0];
  const NodeId end = node.operands[1];
  const NodeId body = node.operands[2];
  const Node& first = program_.node(begin);
  const Node& last = program_.node(end);
  const bool constants = first.op == Op::integer_constant && last.op == Op::integer_constant;
  if (begin == end || (constants && first.integer >= last.integer)) return program_.boolean(false);  // nothing in it
  if (is_boolean(body, false)) return body;  // any(False for ...) == False
  if (uses_loop(body, node.symbol)) return std::nullopt;
  return binary(Op::logical_and, binary(Op::less, begin, end), body);  // x for some r == (begin < end) & x
}

}  // namespace flashspan::mask
