// typed_nodes.cpp -- see typed_nodes.hpp.
#include "codegen/mask/typed_nodes.hpp"

#include <algorithm>

namespace flashspan::mask {
namespace {

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

TypedNode wrong(std::string got, std::string takes) {
  return {.node = no_node, .got = std::move(got), .takes = std::move(takes)};
}

}  // namespace

bool TypedNodes::any_missing(const std::vector<NodeId>& operands) const {
  return std::find(operands.begin(), operands.end(), no_node) != operands.end();
}

std::string TypedNodes::types_of(const std::vector<NodeId>& operands) const {
  std::string text;
  for (std::size_t place = 0; place < operands.size(); ++place) {
    if (place > 0) text += place + 1 == operands.size() ? " and " : ", ";
    text += to_string(type(operands[place]));
  }
  return text;
}

void TypedNodes::to_common_type(std::vector<NodeId>& operands) {
  const auto is_real = [&](NodeId operand) { return type(operand) == ValueType::real; };
  if (std::none_of(operands.begin(), operands.end(), is_real)) return;
  for (NodeId& operand : operands) {
    if (!is_real(operand)) operand = program_.unary(Op::to_real, operand);
  }
}

TypedNode TypedNodes::as_real(NodeId operand, std::string_view written) {
  if (operand == no_node) return {};
  if (type(operand) == ValueType::boolean) return wrong(quoted(written) + " of a bool", "a number");
  return {.node = type(operand) == ValueType::real ? operand : program_.unary(Op::to_real, operand),
          .got = {},
          .takes = {}};
}

TypedNode TypedNodes::number_function(Op op, std::vector<NodeId> operands, std::string_view written) {
  if (any_missing(operands)) return {};
  for (const NodeId operand : operands) {
    if (type(operand) != ValueType::boolean) continue;
    const bool one = operands.size() == 1;
    return wrong(quoted(written) + (one ? " of a bool" : " between " + types_of(operands)),
                 one ? "a number" : "numbers; where(condition, 1, 0) makes a number of a bool");
  }
  to_common_type(operands);
  if (operands.size() == 1) return {.node = program_.unary(op, operands[0]), .got = {}, .takes = {}};
  NodeId node = operands[0];
  for (std::size_t place = 1; place < operands.size(); ++place) node = program_.binary(op, node, operands[place]);
  return {.node = node, .got = {}, .takes = {}};
}

TypedNode TypedNodes::integer_operation(Op op, NodeId left, NodeId right, std::string_view written) {
  if (any_missing({left, right})) return {};
  if (type(left) != ValueType::integer || type(right) != ValueType::integer) {
    return wrong(quoted(written) + " between " + types_of({left, right}), "two ints; '/' divides reals");
  }
  return {.node = program_.binary(op, left, right), .got = {}, .takes = {}};
}

TypedNode TypedNodes::infix(std::string_view symbol, NodeId left, NodeId right) {
  if (symbol == "&") return logical(Op::logical_and, left, right, symbol);
  if (symbol == "|") return logical(Op::logical_or, left, right, symbol);
  if (symbol == "+") return number_function(Op::add, {left, right}, symbol);
  if (symbol == "-") return number_function(Op::subtract, {left, right}, symbol);
  if (symbol == "*") return number_function(Op::multiply, {left, right}, symbol);
  if (symbol == "//") return integer_operation(Op::floor_divide, left, right, symbol);
  if (symbol == "%") return integer_operation(Op::modulo, left, right, symbol);
  TypedNode dividend = as_real(left, symbol);
  if (dividend.node == no_node) return dividend;
  return number_function(Op::divide, {dividend.node, right}, symbol);
}

TypedNode TypedNodes::compare(std::string_view symbol, NodeId left, NodeId right) {
  if (any_missing({left, right})) return {};
  const bool equality = symbol == "==" || symbol == "!=";
  const bool left_is_boolean = type(left) == ValueType::boolean;
  if (left_is_boolean != (type(right) == ValueType::boolean) || (left_is_boolean && !equality)) {
    return wrong(quoted(symbol) + " between " + types_of({left, right}),
                 "two numbers; '&' and '|' bind tighter than comparisons, so parentheses may be missing");
  }
  if (left_is_boolean) {  // a == b is where(a, b, ~b)
    const NodeId negated = program_.unary(Op::logical_not, right);
    return select(left, symbol == "==" ? right : negated, symbol == "==" ? negated : right);
  }
  std::vector<NodeId> sides{left, right};
  to_common_type(sides);
  const auto comparison = [&](Op op, NodeId first, NodeId second) {
    return TypedNode{.node = program_.binary(op, first, second), .got = {}, .takes = {}};
  };
  if (symbol == "<") return comparison(Op::less, sides[0], sides[1]);
  if (symbol == "<=") return comparison(Op::less_equal, sides[0], sides[1]);
  if (symbol == ">") return comparison(Op::less, sides[1], sides[0]);
  if (symbol == ">=") return comparison(Op::less_equal, sides[1], sides[0]);
  return comparison(symbol == "==" ? Op::equal : Op::not_equal, sides[0], sides[1]);
}

TypedNode TypedNodes::logical(Op op, NodeId left, NodeId right, std::string_view written) {
  if (any_missing({left, right})) return {};
  if (type(left) != ValueType::boolean || type(right) != ValueType::boolean) {
    const bool symbol = written == "&" || written == "|";
    return wrong(quoted(written) + " between " + types_of({left, right}),
                 symbol ? "two bools; " + quoted(written) + " binds tighter than comparisons, so write (a >= b) " +
                              std::string(written) + " (c == d); there are no operations on bits"
                        : std::string("two bools"));
  }
  return {.node = program_.binary(op, left, right), .got = {}, .takes = {}};
}

TypedNode TypedNodes::logical_not(NodeId operand, std::string_view written) {
  if (operand == no_node) return {};
  if (type(operand) != ValueType::boolean) {
    return wrong(quoted(written) + " of " + types_of({operand}),
                 written == "~" ? "a bool; '~' is the logical not and binds tighter than comparisons" : "a bool");
  }
  return {.node = program_.unary(Op::logical_not, operand), .got = {}, .takes = {}};
}

TypedNode TypedNodes::select(NodeId condition, NodeId if_true, NodeId if_false) {
  if (any_missing({condition, if_true, if_false})) return {};
  if (type(condition) != ValueType::boolean) return wrong("a condition of type " + types_of({condition}), "a bool");
  std::vector<NodeId> values{if_true, if_false};
  if ((type(if_true) == ValueType::boolean) != (type(if_false) == ValueType::boolean)) {
    return wrong("a choice between " + types_of(values), "two bools or two numbers");
  }
  to_common_type(values);
  return {.node = program_.select(condition, values[0], values[1]), .got = {}, .takes = {}};
}

TypedNode TypedNodes::call(const Function& function, const std::vector<NodeId>& arguments) {
  if (function.op == Op::select) return select(arguments[0], arguments[1], arguments[2]);
  const bool takes_reals = function.op == Op::tanh || function.op == Op::exp || function.op == Op::log ||
                           function.op == Op::sqrt || function.op == Op::to_real;
  if (!takes_reals) return number_function(function.op, arguments, function.name);
  TypedNode argument = as_real(arguments[0], function.name);
  if (argument.node == no_node || function.op == Op::to_real) return argument;
  return number_function(function.op, {argument.node}, function.name);
}

TypedNode TypedNodes::lookup(int tensor, const std::vector<NodeId>& indices) {
  if (any_missing(indices)) return {};
  const TensorDeclaration& declaration = program_.tensors()[static_cast<std::size_t>(tensor)];
  for (const NodeId index : indices) {
    if (type(index) != ValueType::integer) return wrong("an index of type " + types_of({index}), "an int");
  }
  Node node;
  node.op = Op::lookup;
  node.type = declaration.dtype == DType::i32 ? ValueType::integer : ValueType::real;
  node.operands = indices;
  node.symbol = tensor;
  return {.node = program_.add(std::move(node)), .got = {}, .takes = {}};
}

TypedNode TypedNodes::any(int loop, NodeId begin, NodeId end, NodeId body) {
  if (any_missing({begin, end, body})) return {};
  if (type(begin) != ValueType::integer || type(end) != ValueType::integer) {
    return wrong("a range of " + types_of({begin, end}), "ints");
  }
  if (type(body) != ValueType::boolean) return wrong("a condition of type " + types_of({body}), "a bool");
  Node node;
  node.op = Op::any;
  node.type = ValueType::boolean;
  node.operands = {begin, end, body};
  node.symbol = loop;
  return {.node = program_.add(std::move(node)), .got = {}, .takes = {}};
}

}  // namespace flashspan::mask
