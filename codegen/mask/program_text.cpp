// program_text.cpp -- Program to canonical text, and the identity that is made of it.
//
// The text is canonical: it depends neither on the order in which nodes were added nor on the numbers of loops
// (a loop variable is named by how many loops stand around it). It has no more parentheses than needed, so that
// long chains `a + b + c + ...` do not nest when the text is parsed again.
#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>

#include "codegen/mask/program.hpp"

namespace flashspan::mask {
namespace {

// Python's precedence levels, lowest first, as far as they occur in canonical text.
enum Level { level_comparison = 1, level_or, level_and, level_sum, level_product, level_unary, level_atom };

struct Infix {
  const char* text;
  Level level;
};

// The infix form of an operation, or a null text. Comparisons do not associate: both sides stand one level higher.
Infix infix_of(Op op) {
  switch (op) {
    case Op::less:
      return {" < ", level_comparison};
    case Op::less_equal:
      return {" <= ", level_comparison};
    case Op::equal:
      return {" == ", level_comparison};
    case Op::not_equal:
      return {" != ", level_comparison};
    case Op::logical_or:
      return {" | ", level_or};
    case Op::logical_and:
      return {" & ", level_and};
    case Op::add:
      return {" + ", level_sum};
    case Op::subtract:
      return {" - ", level_sum};
    case Op::multiply:
      return {" * ", level_product};
    case Op::divide:
      return {" / ", level_product};
    case Op::floor_divide:
      return {" // ", level_product};
    case Op::modulo:
      return {" % ", level_product};
    case Op::integer_constant:
    case Op::real_constant:
    case Op::boolean_constant:
    case Op::variable:
    case Op::scalar:
    case Op::loop_variable:
    case Op::lookup:
    case Op::minimum:
    case Op::maximum:
    case Op::negate:
    case Op::absolute:
    case Op::tanh:
    case Op::exp:
    case Op::log:
    case Op::sqrt:
    case Op::to_real:
    case Op::select:
    case Op::logical_not:
    case Op::any:
      break;
  }
  return {nullptr, level_atom};
}

bool is_extremum(Op op) { return op == Op::minimum || op == Op::maximum; }

// Name of an operation that is written as a call, or null.
const char* call_name_of(Op op) {
  switch (op) {
    case Op::minimum:
      return "min";
    case Op::maximum:
      return "max";
    case Op::absolute:
      return "abs";
    case Op::tanh:
      return "tanh";
    case Op::exp:
      return "exp";
    case Op::log:
      return "log";
    case Op::sqrt:
      return "sqrt";
    case Op::to_real:
      return "float";
    case Op::select:
      return "where";
    case Op::integer_constant:
    case Op::real_constant:
    case Op::boolean_constant:
    case Op::variable:
    case Op::scalar:
    case Op::loop_variable:
    case Op::lookup:
    case Op::add:
    case Op::subtract:
    case Op::multiply:
    case Op::negate:
    case Op::floor_divide:
    case Op::modulo:
    case Op::divide:
    case Op::less:
    case Op::less_equal:
    case Op::equal:
    case Op::not_equal:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not:
    case Op::any:
      break;
  }
  return nullptr;
}

// Shortest decimal text that reads back as the same binary32 value, always recognisable as a real.
std::string text_of_real(double value) {
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), static_cast<float>(value)).ptr;
  std::string text(buffer.data(), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Writes with a stack of its own: a long chain is as deep as it is long.
class Writer {
 public:
  explicit Writer(const Program& program) : program_(program) {}

  std::string write(NodeId root) {
    push(root, level_comparison);
    while (!pending_.empty()) {
      const Item item = std::move(pending_.back());
      pending_.pop_back();
      if (item.enter_loop >= 0) {
        depth_by_loop_[item.enter_loop] = depth_++;
      } else if (item.leave_loop >= 0) {
        depth_by_loop_.erase(item.leave_loop);
        --depth_;
      } else if (item.node >= 0) {
        write_node(item.node, item.level);
      } else {
        text_ += item.text;
      }
    }
    return std::move(text_);
  }

 private:
  struct Item {
    std::string text;
    NodeId node = -1;
    Level level = level_atom;  // lowest level that needs no parentheses here
    int enter_loop = -1;
    int leave_loop = -1;
  };

  // Everything is pushed in reverse: the last pushed is written first.
  void push(NodeId node, Level level) { pending_.push_back({.text = {}, .node = node, .level = level}); }
  void push(std::string text) { pending_.push_back({.text = std::move(text)}); }

  void push_list(const std::vector<NodeId>& operands) {
    for (std::size_t position = operands.size(); position-- > 0;) {
      push(operands[position], level_comparison);
      if (position > 0) push(", ");
    }
  }

  void write_node(NodeId id, Level level) {
    const Node& node = program_.node(id);
    if (const Infix infix = infix_of(node.op); infix.text != nullptr) {
      write_infix(node, infix, level);
    } else if (const char* name = call_name_of(node.op); name != nullptr) {
      push(")");
      push_list(is_extremum(node.op) ? chain_of(node) : node.operands);
      text_ += name;
      text_ += '(';
    } else if (node.op == Op::negate || node.op == Op::logical_not) {
      write_prefix(node, level);
    } else if (node.op == Op::lookup) {
      push("]");
      push_list(node.operands);
      text_ += program_.tensors()[static_cast<std::size_t>(node.symbol)].name + "[";
    } else if (node.op == Op::any) {
      write_any(node);
    } else {
      write_leaf(node);
    }
  }

  // max(max(a, b), c) is written as it is read: max(a, b, c). A long one would nest deeper than is read again.
  [[nodiscard]] std::vector<NodeId> chain_of(const Node& node) const {
    std::vector<NodeId> reversed;
    const Node* link = &node;
    for (; program_.node(link->operands[0]).op == node.op; link = &program_.node(link->operands[0])) {
      reversed.push_back(link->operands[1]);
    }
    reversed.insert(reversed.end(), {link->operands[1], link->operands[0]});
    return {reversed.rbegin(), reversed.rend()};
  }

  void write_infix(const Node& node, Infix infix, Level level) {
    const bool parentheses = level > infix.level;
    const auto higher = static_cast<Level>(infix.level + 1);
    if (parentheses) push(")");
    push(node.operands[1], higher);
    push(infix.text);
    push(node.operands[0], infix.level == level_comparison ? higher : infix.level);
    if (parentheses) text_ += '(';
  }

  void write_prefix(const Node& node, Level level) {
    const bool parentheses = level > level_unary;
    // "-1" is the constant; the negation of the constant 1 is written "-(1)".
    const Op operand = program_.node(node.operands[0]).op;
    const bool of_number = node.op == Op::negate && (operand == Op::integer_constant || operand == Op::real_constant);
    if (parentheses) push(")");
    if (of_number) push(")");
    push(node.operands[0], of_number ? level_comparison : level_unary);
    if (parentheses) text_ += '(';
    text_ += node.op == Op::negate ? '-' : '~';
    if (of_number) text_ += '(';
  }

  void write_any(const Node& node) {
    push("))");
    push(node.operands[1], level_comparison);
    push(", ");
    push(node.operands[0], level_comparison);
    push(" for " + loop_name(depth_) + " in range(");
    pending_.push_back({.text = {}, .leave_loop = node.symbol});
    push(node.operands[2], level_comparison);
    pending_.push_back({.text = {}, .enter_loop = node.symbol});
    text_ += "any(";
  }

  void write_leaf(const Node& node) {
    const auto symbol = static_cast<std::size_t>(node.symbol);
    if (node.op == Op::integer_constant) text_ += std::to_string(node.integer);
    if (node.op == Op::real_constant) text_ += text_of_real(node.real);
    if (node.op == Op::boolean_constant) text_ += node.integer != 0 ? "True" : "False";
    if (node.op == Op::variable) text_ += to_string(static_cast<Variable>(node.symbol));
    if (node.op == Op::scalar) text_ += program_.scalars()[symbol].name;
    if (node.op == Op::loop_variable) {
      const auto depth = depth_by_loop_.find(node.symbol);
      text_ += depth == depth_by_loop_.end() ? "unbound_loop" + std::to_string(node.symbol) : loop_name(depth->second);
    }
  }

  // r0, r1, ... from the outermost loop inwards, leaving out names that are declared.
  std::string loop_name(int depth) const {
    for (int number = 0;; ++number) {
      std::string name = "r" + std::to_string(number);
      if (is_declared(name)) continue;
      if (depth-- == 0) return name;
    }
  }

  bool is_declared(const std::string& name) const {
    const auto has_name = [&](const auto& declaration) { return declaration.name == name; };
    return std::any_of(program_.scalars().begin(), program_.scalars().end(), has_name) ||
           std::any_of(program_.tensors().begin(), program_.tensors().end(), has_name);
  }

  const Program& program_;
  std::string text_;
  std::vector<Item> pending_;
  std::unordered_map<int, int> depth_by_loop_;
  int depth_ = 0;
};

}  // namespace

std::string Program::to_text() const { return nodes_.empty() ? std::string() : Writer(*this).write(root_); }

std::string Program::to_signature() const {
  std::string text;
  for (const TensorDeclaration& tensor : tensors_) {
    text += tensor.name + ": " + flashspan::to_string(tensor.dtype) + "[" + std::to_string(tensor.rank) + "]; ";
  }
  for (const ScalarDeclaration& scalar : scalars_) {
    text += scalar.name + ": " + mask::to_string(scalar.type) + "; ";
  }
  return text + to_text();
}

const char* to_string(Variable variable) {
  switch (variable) {
    case Variable::b:
      return "b";
    case Variable::h:
      return "h";
    case Variable::q:
      return "q";
    case Variable::k:
      return "k";
    case Variable::q_len:
      return "q_len";
    case Variable::kv_len:
      return "kv_len";
    case Variable::score:
      return "score";
  }
  return "unknown";
}

const char* to_string(ValueType type) {
  switch (type) {
    case ValueType::boolean:
      return "bool";
    case ValueType::integer:
      return "int";
    case ValueType::real:
      return "real";
  }
  return "unknown";
}

}  // namespace flashspan::mask
