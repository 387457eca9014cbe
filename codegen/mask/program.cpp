// program.cpp -- Program's nodes: hash-consing, short forms, and what each node depends on.
#include "codegen/mask/program.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <iterator>

#include "codegen/mask/make_node.hpp"

namespace flashspan::mask {
namespace {

// FNV-1a over whole words; only the speed of add() depends on its quality.
class NodeHash {
 public:
  void mix(std::uint64_t word) { value_ = (value_ ^ word) * 0x100000001b3u; }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

std::uint64_t hash_of(const Node& node) {
  NodeHash hash;
  hash.mix(static_cast<std::uint64_t>(node.op));
  hash.mix(static_cast<std::uint64_t>(node.integer));
  hash.mix(std::bit_cast<std::uint64_t>(node.real));
  hash.mix(static_cast<std::uint64_t>(node.symbol));
  for (NodeId operand : node.operands) hash.mix(static_cast<std::uint64_t>(operand));
  return hash.value();
}

// Equality as numbers would make one node of 0.0 and -0.0, which 1 / x tells apart.
bool same_node(const Node& left, const Node& right) {
  return left == right && std::bit_cast<std::uint64_t>(left.real) == std::bit_cast<std::uint64_t>(right.real);
}

#ifndef NDEBUG
bool types_fit(const Program& program, const Node& node) {
  const auto type = [&](std::size_t position) { return program.node(node.operands.at(position)).type; };
  const auto all_are = [&](ValueType wanted) {
    return std::all_of(node.operands.begin(), node.operands.end(),
                       [&](NodeId operand) { return program.node(operand).type == wanted; });
  };
  const auto count = node.operands.size();
  const bool numbers_alike = count > 0 && type(0) != ValueType::boolean && all_are(type(0));
  switch (node.op) {
    case Op::integer_constant:
    case Op::loop_variable:
      return count == 0 && node.type == ValueType::integer;
    case Op::real_constant:
      return count == 0 && node.type == ValueType::real && std::isfinite(node.real);
    case Op::boolean_constant:
      return count == 0 && node.type == ValueType::boolean;
    case Op::variable:
    case Op::scalar:
      return count == 0 && node.type != ValueType::boolean;
    case Op::lookup:
      return all_are(ValueType::integer) && node.type != ValueType::boolean &&
             static_cast<int>(count) == program.tensors().at(static_cast<std::size_t>(node.symbol)).rank;
    case Op::add:
    case Op::subtract:
    case Op::multiply:
    case Op::minimum:
    case Op::maximum:
      return count == 2 && numbers_alike && node.type == type(0);
    case Op::negate:
    case Op::absolute:
      return count == 1 && numbers_alike && node.type == type(0);
    case Op::floor_divide:
    case Op::modulo:
      return count == 2 && all_are(ValueType::integer) && node.type == ValueType::integer;
    case Op::divide:
      return count == 2 && all_are(ValueType::real) && node.type == ValueType::real;
    case Op::tanh:
    case Op::exp:
    case Op::log:
    case Op::sqrt:
      return count == 1 && all_are(ValueType::real) && node.type == ValueType::real;
    case Op::to_real:
      return count == 1 && all_are(ValueType::integer) && node.type == ValueType::real;
    case Op::select:
      return count == 3 && type(0) == ValueType::boolean && type(1) == type(2) && node.type == type(1);
    case Op::less:
    case Op::less_equal:
    case Op::equal:
    case Op::not_equal:
      return count == 2 && numbers_alike && node.type == ValueType::boolean;
    case Op::logical_and:
    case Op::logical_or:
      return count == 2 && all_are(ValueType::boolean) && node.type == ValueType::boolean;
    case Op::logical_not:
      return count == 1 && all_are(ValueType::boolean) && node.type == ValueType::boolean;
    case Op::any:
      return count == 3 && type(0) == ValueType::integer && type(1) == ValueType::integer &&
             type(2) == ValueType::boolean && node.type == ValueType::boolean;
  }
  return false;
}
#endif

}  // namespace

NodeId Program::add(Node node) {
  assert(types_fit(*this, node));
  const std::uint64_t hash = hash_of(node);
  const auto [first, last] = index_.equal_range(hash);
  for (auto entry = first; entry != last; ++entry) {
    if (same_node(nodes_[static_cast<std::size_t>(entry->second)], node)) return entry->second;
  }
  const auto id = static_cast<NodeId>(nodes_.size());
  VariableSet inputs = node.op == Op::variable ? set_of(static_cast<Variable>(node.symbol)) : 0u;
  for (NodeId operand : node.operands) inputs |= node_dependencies(operand);
  dependencies_.push_back(inputs);
  nodes_.push_back(std::move(node));
  index_.emplace(hash, id);
  return id;
}

int Program::fresh_loop() const {
  int fresh = 0;
  for (const Node& node : nodes_) {
    if (node.op == Op::loop_variable || node.op == Op::any) fresh = std::max(fresh, node.symbol + 1);
  }
  return fresh;
}

NodeId Program::integer(std::int64_t value) {
  Node node;
  node.op = Op::integer_constant;
  node.type = ValueType::integer;
  node.integer = value;
  return add(std::move(node));
}

NodeId Program::real(double value) {
  Node node;
  node.op = Op::real_constant;
  node.type = ValueType::real;
  node.real = static_cast<float>(value);
  return add(std::move(node));
}

NodeId Program::boolean(bool value) {
  Node node;
  node.op = Op::boolean_constant;
  node.type = ValueType::boolean;
  node.integer = value ? 1 : 0;
  return add(std::move(node));
}

NodeId Program::variable(Variable variable) {
  Node node;
  node.op = Op::variable;
  node.type = variable == Variable::score ? ValueType::real : ValueType::integer;
  node.symbol = static_cast<int>(variable);
  return add(std::move(node));
}

NodeId Program::unary(Op op, NodeId operand) { return add(make_unary(*this, op, operand)); }

NodeId Program::binary(Op op, NodeId left, NodeId right) { return add(make_binary(*this, op, left, right)); }

NodeId Program::select(NodeId condition, NodeId if_true, NodeId if_false) {
  return add(make_select(*this, condition, if_true, if_false));
}

std::vector<std::vector<int>> Program::free_loops_by_node() const {
  std::vector<std::vector<int>> loops;
  loops.reserve(nodes_.size());
  for (const Node& node : nodes_) {
    std::vector<int> set;
    if (node.op == Op::loop_variable) set.push_back(node.symbol);
    for (std::size_t position = 0; position < node.operands.size(); ++position) {
      std::vector<int> inner = loops[static_cast<std::size_t>(node.operands[position])];
      const bool is_body = node.op == Op::any && position == 2;
      if (is_body) std::erase(inner, node.symbol);
      std::vector<int> merged;
      std::set_union(set.begin(), set.end(), inner.begin(), inner.end(), std::back_inserter(merged));
      set = std::move(merged);
    }
    loops.push_back(std::move(set));
  }
  return loops;
}

}  // namespace flashspan::mask
