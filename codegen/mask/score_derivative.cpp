// score_derivative.cpp -- see score_derivative.hpp. Forward differentiation, node by node in order.
#include "codegen/mask/score_derivative.hpp"

#include <optional>

#include "codegen/mask/rebuild.hpp"
#include "codegen/mask/simplify.hpp"

namespace flashspan::mask {
namespace {

/// A derivative that is zero for every score is not a node: the product rule then drops its term, which keeps
/// 0 * infinity from making a NaN.
using Derivative = std::optional<NodeId>;

constexpr NodeId absent_node = -1;

class Differentiator {
 public:
  /// By the value of node `by`; absent_node: of a node that the score does not have.
  Differentiator(const Program& score, NodeId by) : program_(score), by_(by), derivatives_(score.nodes().size()) {}

  Program run() {
    for (const NodeId id : live_nodes(program_)) {
      const Node node = program_.node(id);  // a copy: adding nodes moves them
      if (node.type == ValueType::real) derivatives_[static_cast<std::size_t>(id)] = differentiate(id, node);
    }
    program_.set_root(value(derivatives_[static_cast<std::size_t>(program_.root())]));
    return simplify(program_, Declarations::keep_all);
  }

 private:
  [[nodiscard]] Derivative of(NodeId id) const { return derivatives_[static_cast<std::size_t>(id)]; }
  NodeId value(Derivative derivative) { return derivative ? *derivative : program_.real(0); }

  Derivative differentiate(NodeId id, const Node& node) {
    if (id == by_) return program_.real(1);
    switch (node.op) {
      case Op::add:
        return sum(of(node.operands[0]), of(node.operands[1]));
      case Op::subtract:
        return sum(of(node.operands[0]), negated(of(node.operands[1])));
      case Op::multiply:
        return product(node.operands[0], node.operands[1]);
      case Op::divide:
        return quotient(id, node.operands[0], node.operands[1]);
      case Op::minimum:
        return chosen(Op::less_equal, node.operands[0], node.operands[1], node);
      case Op::maximum:
        return chosen(Op::less_equal, node.operands[1], node.operands[0], node);
      case Op::select:
        return select(node.operands[0], of(node.operands[1]), of(node.operands[2]));
      case Op::negate:
        return negated(of(node.operands[0]));
      case Op::absolute:
      case Op::tanh:
      case Op::exp:
      case Op::log:
      case Op::sqrt:
        return function(id, node.op, node.operands[0]);
      case Op::real_constant:
      case Op::variable:
      case Op::scalar:
      case Op::lookup:
      case Op::to_real:
        break;
      case Op::integer_constant:
      case Op::boolean_constant:
      case Op::loop_variable:
      case Op::floor_divide:
      case Op::modulo:
      case Op::less:
      case Op::less_equal:
      case Op::equal:
      case Op::not_equal:
      case Op::logical_and:
      case Op::logical_or:
      case Op::logical_not:
      case Op::any:
        break;  // not real
    }
    return std::nullopt;
  }

  Derivative sum(Derivative a, Derivative b) {
    if (!a || !b) return a ? a : b;
    return program_.binary(Op::add, *a, *b);
  }

  Derivative negated(Derivative a) {
    if (!a) return std::nullopt;
    return program_.unary(Op::negate, *a);
  }

  Derivative times(Derivative a, NodeId factor) {
    if (!a) return std::nullopt;
    return program_.binary(Op::multiply, *a, factor);
  }

  Derivative over(Derivative a, NodeId divisor) {
    if (!a) return std::nullopt;
    return program_.binary(Op::divide, *a, divisor);
  }

  // (f g)' = f' g + g' f
  Derivative product(NodeId f, NodeId g) { return sum(times(of(f), g), times(of(g), f)); }

  // (f / g)' = (f' - g' (f / g)) / g, and 0 where g is 0, as the quotient itself
  Derivative quotient(NodeId whole, NodeId f, NodeId g) { return over(sum(of(f), negated(times(of(g), whole))), g); }

  Derivative select(NodeId condition, Derivative if_true, Derivative if_false) {
    if (!if_true && !if_false) return std::nullopt;
    const NodeId true_value = value(if_true);
    return program_.select(condition, true_value, value(if_false));
  }

  // The first operand's derivative if `left op right`, else the second's.
  Derivative chosen(Op op, NodeId left, NodeId right, const Node& node) {
    return select(program_.binary(op, left, right), of(node.operands[0]), of(node.operands[1]));
  }

  Derivative function(NodeId whole, Op op, NodeId f) {
    const Derivative inner = of(f);
    if (!inner) return std::nullopt;
    if (op == Op::exp) return times(inner, whole);  // exp(f)' = f' exp(f)
    if (op == Op::log) return over(inner, f);       // log(f)' = f' / f
    if (op == Op::sqrt) {                           // sqrt(f)' = f' / (2 sqrt(f))
      return over(inner, program_.binary(Op::multiply, whole, program_.real(2)));
    }
    if (op == Op::tanh) {  // tanh(f)' = f' (1 - tanh(f)^2)
      const NodeId square = program_.binary(Op::multiply, whole, whole);
      return times(inner, program_.binary(Op::subtract, program_.real(1), square));
    }
    // abs(f)' = f' if f > 0, -f' if f < 0, 0 at 0
    const NodeId zero = program_.real(0);
    const Derivative negative = select(program_.binary(Op::less, f, zero), negated(inner), std::nullopt);
    return select(program_.binary(Op::less, zero, f), inner, negative);
  }

  Program program_;
  NodeId by_;
  std::vector<Derivative> derivatives_;
};

/// The only real variable is the score.
NodeId score_variable(const Program& score) {
  for (NodeId id = 0; id < static_cast<NodeId>(score.nodes().size()); ++id) {
    const Node& node = score.node(id);
    if (node.op == Op::variable && node.type == ValueType::real) return id;
  }
  return absent_node;
}

}  // namespace

Program derivative_by_score(const Program& score) { return Differentiator(score, score_variable(score)).run(); }

Program derivative_by_lookup(const Program& score, NodeId lookup) { return Differentiator(score, lookup).run(); }

}  // namespace flashspan::mask
