// emit_cuda_program.cpp -- a Program as CUDA statements: the reading at one point.
#include "codegen/kernel/emit_cuda_program.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "codegen/kernel/emit_cuda_names.hpp"
#include "codegen/mask/schedule.hpp"
#include "codegen/mask/tile_intervals.hpp"

namespace flashspan::kernel {
namespace {

using mask::Node;
using mask::NodeId;
using mask::Op;
using mask::Program;
using mask::ValueType;

class ValueEmitter {
 public:
  ValueEmitter(const Program& program, const SideLookups& given)
      : ValueEmitter(program, mask::schedule(program), given) {}
  ValueEmitter(const Program& program, mask::Schedule schedule, const SideLookups& given)
      : program_(program),
        schedule_(std::move(schedule)),
        ranges_(mask::value_ranges(program)),
        given_(given_names(program, given)),
        is_given_(selection_of(program, given)) {}

  /// Statements that declare every node behind the results.
  std::string declaring(const std::vector<NodeId>& results) {
    emit_all_behind(results);
    return std::move(text_);
  }

  std::string returning() { return declaring({program_.root()}) + "    return " + name_of(program_.root()) + ";\n"; }

  std::string returning_indices(const Node& lookup) {
    return declaring(lookup.operands) + "    return " + indices_of(lookup) + ";\n";
  }

  std::string storing(const std::vector<NodeId>& results) {
    emit_all_behind(results);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const std::string name = name_of(results[i]);
      text_ += "    values[" + std::to_string(i) +
               "] = " + (is_real(results[i]) ? "__float_as_int(" + name + ")" : name) + ";\n";
    }
    return std::move(text_);
  }

 private:
  void emit_all_behind(const std::vector<NodeId>& results) {
    selected_ = nodes_behind(program_, results, is_given_);
    emit(schedule_.once, "    ");
  }

  void emit(const std::vector<NodeId>& list, const std::string& indent) {
    for (const NodeId id : list) {
      if (selected_[static_cast<std::size_t>(id)]) emit(id, indent);
    }
  }

  void emit(NodeId id, const std::string& indent) {
    const Node& node = program_.node(id);
    if (node.op == Op::any) return emit_any(id, indent);
    text_ += indent + "const " + type_of(id) + " " + name_of(id) + " = " + expression(id) + ";\n";
  }

  void emit_any(NodeId id, const std::string& indent) {
    const Node& node = program_.node(id);
    const std::string result = name_of(id);
    const std::string loop = loop_name(node.symbol);
    text_ += indent + "bool " + result + " = false;\n";
    text_ += indent + "for (int64 " + loop + " = " + operand(node, 0) + "; " + loop + " < " + operand(node, 1) +
             " && !" + result + "; ++" + loop + ") {\n";
    if (const auto body = schedule_.by_loop.find(node.symbol); body != schedule_.by_loop.end()) {
      emit(body->second, indent + "  ");
    }
    text_ += indent + "  " + result + " = " + operand(node, 2) + ";\n" + indent + "}\n";
  }

  [[nodiscard]] bool is_narrow(NodeId id) const {
    const mask::Interval range = ranges_[static_cast<std::size_t>(id)];
    return range.lo >= std::numeric_limits<std::int32_t>::min() && range.hi <= std::numeric_limits<std::int32_t>::max();
  }
  [[nodiscard]] bool is_integer(NodeId id) const { return program_.node(id).type == ValueType::integer; }
  [[nodiscard]] bool is_real(NodeId id) const { return program_.node(id).type == ValueType::real; }

  [[nodiscard]] const char* type_of(NodeId id) const {
    switch (program_.node(id).type) {
      case ValueType::boolean:
        return "bool";
      case ValueType::integer:
        return is_narrow(id) ? "int" : "int64";
      case ValueType::real:
        return "float";
    }
    return "";
  }

  [[nodiscard]] static std::string operand(const Node& node, std::size_t place) {
    return name_of(node.operands[place]);
  }

  /// True if the operation and all its operands are exact in 32 bits.
  [[nodiscard]] bool all_narrow(NodeId id) const {
    const Node& node = program_.node(id);
    if (node.type == ValueType::integer && !is_narrow(id)) return false;
    for (const NodeId operand : node.operands) {
      if (is_integer(operand) && !is_narrow(operand)) return false;
    }
    return true;
  }

  [[nodiscard]] std::string wide(const std::string& value) const { return "static_cast<int64>(" + value + ")"; }

  /// An integer operation: `narrow` with plain operands, else the named function of two 64-bit values.
  [[nodiscard]] std::string integer_operation(NodeId id, const std::string& narrow, const std::string& function) const {
    if (all_narrow(id)) return narrow;
    const Node& node = program_.node(id);
    std::string call = function + "(";
    for (std::size_t place = 0; place < node.operands.size(); ++place) {
      call += (place == 0 ? "" : ", ") + wide(operand(node, place));
    }
    call += ")";
    return is_narrow(id) ? "static_cast<int>(" + call + ")" : call;
  }

  [[nodiscard]] std::string expression(NodeId id) const {
    const Node& node = program_.node(id);
    if (const std::string& name = given_[static_cast<std::size_t>(id)]; !name.empty()) {
      return is_real(id) ? "__int_as_float(" + name + ")" : name;
    }
    switch (node.op) {
      case Op::integer_constant:
        return integer_literal(node.integer);
      case Op::real_constant:
        return real_literal(node.real);
      case Op::boolean_constant:
        return node.integer != 0 ? "true" : "false";
      case Op::variable:
        return mask::to_string(static_cast<mask::Variable>(node.symbol));
      case Op::scalar:
        return std::string("arguments.") + (node.type == ValueType::integer ? "integers[" : "reals[") +
               std::to_string(node.symbol) + "]";
      case Op::loop_variable:
        return is_narrow(id) ? "static_cast<int>(" + loop_name(node.symbol) + ")" : loop_name(node.symbol);
      case Op::lookup:
        return lookup(node);
      case Op::add:
      case Op::subtract:
      case Op::multiply:
      case Op::minimum:
      case Op::maximum:
      case Op::negate:
      case Op::absolute:
      case Op::floor_divide:
      case Op::modulo:
        return is_real(id) ? real_arithmetic(node) : integer_arithmetic(id);
      case Op::divide:
      case Op::tanh:
      case Op::exp:
      case Op::log:
      case Op::sqrt:
        return real_arithmetic(node);
      case Op::to_real:
        return is_narrow(node.operands[0]) ? "__int2float_rn(" + operand(node, 0) + ")"
                                           : "__ll2float_rn(" + operand(node, 0) + ")";
      case Op::select:
        return operand(node, 0) + " ? " + operand(node, 1) + " : " + operand(node, 2);
      case Op::less:
        return operand(node, 0) + " < " + operand(node, 1);
      case Op::less_equal:
        return operand(node, 0) + " <= " + operand(node, 1);
      case Op::equal:
        return operand(node, 0) + " == " + operand(node, 1);
      case Op::not_equal:
        return operand(node, 0) + " != " + operand(node, 1);
      case Op::logical_and:
        return operand(node, 0) + " && " + operand(node, 1);
      case Op::logical_or:
        return operand(node, 0) + " || " + operand(node, 1);
      case Op::logical_not:
        return "!" + operand(node, 0);
      case Op::any:
        break;  // a loop, not an expression
    }
    return "";
  }

  [[nodiscard]] std::string integer_arithmetic(NodeId id) const {
    const Node& node = program_.node(id);
    const std::string a = operand(node, 0);
    const std::string b = node.operands.size() > 1 ? operand(node, 1) : "";
    const std::string suffix = all_narrow(id) ? "<int>(" : "<int64>(";
    switch (node.op) {
      case Op::add:
        return integer_operation(id, a + " + " + b, "wrapping_add");
      case Op::subtract:
        return integer_operation(id, a + " - " + b, "wrapping_subtract");
      case Op::multiply:
        return integer_operation(id, a + " * " + b, "wrapping_multiply");
      case Op::negate:
        return all_narrow(id) ? "-" + a : "wrapping_subtract(0, " + wide(a) + ")";
      case Op::absolute:
        return all_narrow(id) ? a + " < 0 ? -" + a + " : " + a
                              : a + " < 0 ? wrapping_subtract(0, " + wide(a) + ") : " + wide(a);
      case Op::minimum:
        return a + " < " + b + " ? " + a + " : " + b;
      case Op::maximum:
        return a + " > " + b + " ? " + a + " : " + b;
      case Op::floor_divide:
        return narrowed(id, "floor_divide" + suffix + a + ", " + b + ")");
      case Op::modulo:
        return narrowed(id, "floor_modulo" + suffix + a + ", " + b + ")");
      default:
        return "";
    }
  }

  /// A 64-bit value in the type of node `id`.
  [[nodiscard]] std::string narrowed(NodeId id, const std::string& value) const {
    return is_narrow(id) && !all_narrow(id) ? "static_cast<int>(" + value + ")" : value;
  }

  /// Written with intrinsics that are never contracted to a fused multiply-add, so that all back ends agree.
  [[nodiscard]] static std::string real_arithmetic(const Node& node) {
    const std::string a = operand(node, 0);
    const std::string b = node.operands.size() > 1 ? operand(node, 1) : "";
    switch (node.op) {
      case Op::add:
        return "__fadd_rn(" + a + ", " + b + ")";
      case Op::subtract:
        return "__fsub_rn(" + a + ", " + b + ")";
      case Op::multiply:
        return "__fmul_rn(" + a + ", " + b + ")";
      case Op::minimum:
        return a + " < " + b + " ? " + a + " : " + b;
      case Op::maximum:
        return a + " > " + b + " ? " + a + " : " + b;
      case Op::negate:
        return "-" + a;
      case Op::absolute:
        return "fabsf(" + a + ")";
      case Op::divide:
        return "divide_or_zero(" + a + ", " + b + ")";
      case Op::tanh:
        return "tanhf(" + a + ")";
      case Op::exp:
        return "expf(" + a + ")";
      case Op::log:
        return "logf(" + a + ")";
      case Op::sqrt:
        return "__fsqrt_rn(" + a + ")";
      default:
        return "";
    }
  }

  [[nodiscard]] static std::string indices_of(const Node& lookup) {
    std::string indices = "Indices<" + std::to_string(lookup.operands.size()) + ">{{";
    for (std::size_t place = 0; place < lookup.operands.size(); ++place) {
      indices += (place == 0 ? "" : ", ") + operand(lookup, place);
    }
    return indices + "}}";
  }

  [[nodiscard]] std::string lookup(const Node& node) const {
    const auto rank = std::to_string(node.operands.size());
    const std::string indices = indices_of(node);
    const std::string tensor = "arguments.tensors[" + std::to_string(node.symbol) + "]";
    const DType dtype = program_.tensors()[static_cast<std::size_t>(node.symbol)].dtype;
    if (dtype == DType::i32) return "lookup_integer<" + rank + ">(" + tensor + ", " + indices + ")";
    return std::string("lookup_real<Element::") + to_string(dtype) + ", " + rank + ">(" + tensor + ", " + indices + ")";
  }

  const Program& program_;
  const mask::Schedule schedule_;
  const std::vector<mask::Interval> ranges_;
  const std::vector<std::string> given_;
  const NodeSelection is_given_;
  NodeSelection selected_;
  std::string text_;
};

}  // namespace

std::string emit_values(const mask::Program& program, const SideLookups& given) {
  return ValueEmitter(program, given).returning();
}

std::string emit_lookup_values(const mask::Program& program, const std::vector<NodeId>& lookups) {
  return ValueEmitter(program, SideLookups{}).storing(lookups);
}

std::string emit_lookup_indices(const mask::Program& program) {
  return ValueEmitter(program, SideLookups{}).returning_indices(program.node(program.root()));
}

std::string emit_ranges(const mask::VisibleRanges& visible, const std::string& length) {
  std::vector<NodeId> ends;
  for (const mask::IndexRange& range : visible.ranges) ends.insert(ends.end(), {range.begin, range.end});
  std::string text = ValueEmitter(visible.program, mask::schedule(visible.program, ends), {}).declaring(ends);
  const auto cut = [&](std::size_t i) {
    const std::string place = "[" + std::to_string(i) + "]";
    return "    cut_range(" + name_of(visible.ranges[i].begin) + ", " + name_of(visible.ranges[i].end) + ", " + length +
           ", begin" + place + ", end" + place + ");\n";
  };
  for (std::size_t i = 0; i < visible.ranges.size(); ++i) text += cut(i);
  return text;
}

std::string name_of(NodeId id) { return "n" + std::to_string(id); }
std::string loop_name(int loop) { return "loop" + std::to_string(loop); }

std::vector<std::string> given_names(const mask::Program& program, const SideLookups& given) {
  std::vector<std::string> names(program.nodes().size());
  const auto name_side = [&names](const std::vector<NodeId>& lookups, const char* array) {
    for (std::size_t i = 0; i < lookups.size(); ++i) {
      names[static_cast<std::size_t>(lookups[i])] = std::string(array) + "[" + std::to_string(i) + "]";
    }
  };
  name_side(given.rows, "row");
  name_side(given.columns, "column");
  return names;
}

NodeSelection selection_of(const mask::Program& program, const SideLookups& given) {
  NodeSelection selection;
  for (const std::string& name : given_names(program, given)) selection.push_back(!name.empty());
  return selection;
}

std::string integer_literal(std::int64_t value) {
  // The smallest integer has no literal of its own.
  if (value == std::numeric_limits<std::int64_t>::min()) return "(-9223372036854775807ll - 1)";
  const bool narrow =
      value > std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max();
  return std::to_string(value) + (narrow ? "" : "ll");
}

std::string real_literal(double value) {
  // Not printf: that writes the locale's decimal point.
  std::array<char, 64> digits{};
  const auto written = std::to_chars(digits.begin(), digits.end(), std::abs(value), std::chars_format::hex);
  return std::string(std::signbit(value) ? "-0x" : "0x") + std::string(digits.begin(), written.ptr) + "f";
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char character : text) {
    if (character == '"' || character == '\\') result += '\\';
    result += character == '\n' ? ' ' : character;
  }
  return result;
}

}  // namespace flashspan::kernel
