// emit_cuda_intervals.cpp -- a Program as CUDA statements: the reading over a tile, in the terms of mask/interval.cuh.
#include <vector>

#include "codegen/kernel/emit_cuda_names.hpp"
#include "codegen/kernel/emit_cuda_program.hpp"
#include "codegen/mask/schedule.hpp"

namespace flashspan::kernel {
namespace {

using mask::Node;
using mask::NodeId;
using mask::Op;
using mask::Program;
using mask::ValueType;

class IntervalEmitter {
 public:
  IntervalEmitter(const Program& program, const SideLookups& given)
      : program_(program),
        schedule_(mask::schedule(program)),
        given_(given_names(program, given)),
        is_given_(selection_of(program, given)) {}

  std::string returning() {
    emit_all_behind({program_.root()});
    const std::string root = name_of(program_.root());
    return std::move(text_) + "    return !" + root + ".can_be_true ? TileClass::empty : " + root +
           ".can_be_false ? TileClass::partial : TileClass::full;\n";
  }

  std::string storing(const std::vector<NodeId>& lookups) {
    std::vector<NodeId> integers;
    for (const NodeId id : lookups) {
      if (program_.node(id).type == ValueType::integer) integers.push_back(id);
    }
    emit_all_behind(integers);
    for (std::size_t i = 0; i < lookups.size(); ++i) {
      if (program_.node(lookups[i]).type != ValueType::integer) continue;
      text_ += "    ranges[" + std::to_string(i) + "] = " + name_of(lookups[i]) + ";\n";
    }
    return std::move(text_);
  }

  [[nodiscard]] bool looks_up() {
    select({program_.root()});
    for (std::size_t id = 0; id < selected_.size(); ++id) {
      const Node& node = program_.nodes()[id];
      if (selected_[id] && !is_given_[id] && node.op == Op::lookup && node.type == ValueType::integer) return true;
    }
    return false;
  }

 private:
  /// What is behind a real node decides nothing.
  void select(const std::vector<NodeId>& results) {
    NodeSelection ends = is_given_;
    for (std::size_t id = 0; id < ends.size(); ++id) {
      if (program_.nodes()[id].type == ValueType::real) ends[id] = true;
    }
    selected_ = nodes_behind(program_, results, ends);
  }

  void emit_all_behind(const std::vector<NodeId>& results) {
    select(results);
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
    if (node.type == ValueType::real) return;  // nothing is known of reals
    const char* const type = node.type == ValueType::boolean ? "Truth" : "Interval";
    text_ += indent + "const " + type + " " + name_of(id) + " = " + expression(id) + ";\n";
  }

  void emit_any(NodeId id, const std::string& indent) {
    const Node& node = program_.node(id);
    const std::string result = name_of(id);
    const std::string range = "range" + std::to_string(node.symbol);
    const std::string value = "value" + std::to_string(node.symbol);
    const std::string body_value = name_of(node.operands[2]);
    const auto line = [&](const std::string& text) { text_ += indent + text + "\n"; };
    line("Truth " + result + " = known(false);");
    line("const LoopRange " + range + " = {" + operand(node, 0) + ", " + operand(node, 1) + "};");
    line("if (!" + range + ".is_empty() && " + range + ".is_too_long()) {");
    line("  " + result + " = undecided();");
    line("} else {");
    line("  for (int64 " + value + " = " + range + ".begin.lo; " + value + " < " + range + ".end.hi; ++" + value +
         ") {");
    line("    const Interval " + loop_name(node.symbol) + " = single(" + value + ");");
    line("    (void)" + loop_name(node.symbol) + ";");
    if (const auto body = schedule_.by_loop.find(node.symbol); body != schedule_.by_loop.end()) {
      emit(body->second, indent + "    ");
    }
    line("    if (" + body_value + ".can_be_true) " + result + ".can_be_true = true;");
    line("    if (" + range + ".always_takes(" + value + ") && !" + body_value + ".can_be_false) {");
    line("      " + result + " = known(true);");
    line("      break;");
    line("    }");
    line("  }");
    line("}");
  }

  [[nodiscard]] static std::string operand(const Node& node, std::size_t place) {
    return name_of(node.operands[place]);
  }

  [[nodiscard]] static std::string call(const std::string& function, const Node& node) {
    std::string text = function + "(";
    for (std::size_t place = 0; place < node.operands.size(); ++place)
      text += (place == 0 ? "" : ", ") + operand(node, place);
    return text + ")";
  }

  /// A comparison of integers; one of reals can be either.
  [[nodiscard]] std::string comparison(const std::string& function, const Node& node) const {
    const bool of_reals = program_.node(node.operands[0]).type == ValueType::real;
    return of_reals ? "undecided()" : call(function, node);
  }

  [[nodiscard]] static std::string variable(const Node& node) {
    const auto which = static_cast<mask::Variable>(node.symbol);
    const std::string name = mask::to_string(which);
    const bool is_length = which == mask::Variable::q_len || which == mask::Variable::kv_len;
    return is_length ? "single(" + name + ")" : name;
  }

  [[nodiscard]] static std::string lookup(const Node& node) {
    const auto rank = std::to_string(node.operands.size());
    std::string text =
        "lookup_range<" + rank + ">(arguments.tensors[" + std::to_string(node.symbol) + "], Box<" + rank + ">{{";
    for (std::size_t place = 0; place < node.operands.size(); ++place)
      text += (place == 0 ? "" : ", ") + operand(node, place);
    return text + "}})";
  }

  [[nodiscard]] std::string expression(NodeId id) const {
    const Node& node = program_.node(id);
    if (const std::string& name = given_[static_cast<std::size_t>(id)]; !name.empty()) return name;
    switch (node.op) {
      case Op::integer_constant:
        return "single(" + integer_literal(node.integer) + ")";
      case Op::boolean_constant:
        return node.integer != 0 ? "known(true)" : "known(false)";
      case Op::variable:
        return variable(node);
      case Op::scalar:
        return "single(arguments.integers[" + std::to_string(node.symbol) + "])";
      case Op::loop_variable:
        return loop_name(node.symbol);
      case Op::lookup:
        return lookup(node);
      case Op::add:
        return call("interval_add", node);
      case Op::subtract:
        return call("interval_subtract", node);
      case Op::multiply:
        return call("interval_multiply", node);
      case Op::minimum:
        return call("interval_minimum", node);
      case Op::maximum:
        return call("interval_maximum", node);
      case Op::negate:
        return call("interval_negate", node);
      case Op::absolute:
        return call("interval_absolute", node);
      case Op::floor_divide:
        return call("interval_floor_divide", node);
      case Op::modulo:
        return call("interval_modulo", node);
      case Op::select:
        return call("choose", node);
      case Op::less:
        return comparison("truth_less", node);
      case Op::less_equal:
        return comparison("truth_less_equal", node);
      case Op::equal:
        return comparison("truth_equal", node);
      case Op::not_equal:
        return comparison("truth_not_equal", node);
      case Op::logical_and:
        return call("truth_and", node);
      case Op::logical_or:
        return call("truth_or", node);
      case Op::logical_not:
        return call("truth_not", node);
      case Op::any:
      case Op::real_constant:
      case Op::divide:
      case Op::tanh:
      case Op::exp:
      case Op::log:
      case Op::sqrt:
      case Op::to_real:
        break;  // a loop, and reals: not here
    }
    return "";
  }

  const Program& program_;
  const mask::Schedule schedule_;
  const std::vector<std::string> given_;
  const NodeSelection is_given_;
  NodeSelection selected_;
  std::string text_;
};

}  // namespace

std::string emit_intervals(const mask::Program& program, const SideLookups& given) {
  return IntervalEmitter(program, given).returning();
}

std::string emit_lookup_ranges(const mask::Program& program, const std::vector<NodeId>& lookups) {
  return IntervalEmitter(program, {}).storing(lookups);
}

bool looks_up_by_tile(const mask::Program& program, const SideLookups& given) {
  return IntervalEmitter(program, given).looks_up();
}

}  // namespace flashspan::kernel
