// program_code.cpp -- nodes in the order of their schedule become instructions, first with a value each; then values
// get slots, which are used again when their value is not.
#include "runtime/cuda/program_code.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/mask/schedule.hpp"

namespace flashspan::cuda {
namespace {

using flashspan_device::Instruction;
using flashspan_device::Operation;
using flashspan_device::ProgramCode;
using mask::Node;
using mask::NodeId;
using mask::Op;
using mask::ValueType;

constexpr int none = -1;

/// An instruction before slots are given out: operands and results are numbers of values, of which there may be many.
struct Step {
  Operation operation = Operation::result;
  int to = none;
  std::vector<int> from;  ///< in the order of the node's operands
  int value = 0;          ///< what Instruction::value holds besides slots
  int tensor = 0;         ///< of a lookup
};

Operation for_type(const Node& operand, Operation integer, Operation real) {
  return operand.type == ValueType::real ? real : integer;
}

/// The operation of a node whose operands are all values. `operand`: its first.
Operation operation_of(const Node& node, const Node& operand) {
  switch (node.op) {
    case Op::add:
      return for_type(operand, Operation::add, Operation::real_add);
    case Op::subtract:
      return for_type(operand, Operation::subtract, Operation::real_subtract);
    case Op::multiply:
      return for_type(operand, Operation::multiply, Operation::real_multiply);
    case Op::minimum:
      return for_type(operand, Operation::minimum, Operation::real_minimum);
    case Op::maximum:
      return for_type(operand, Operation::maximum, Operation::real_maximum);
    case Op::negate:
      return for_type(operand, Operation::negate, Operation::real_negate);
    case Op::absolute:
      return for_type(operand, Operation::absolute, Operation::real_absolute);
    case Op::less:
      return for_type(operand, Operation::less, Operation::real_less);
    case Op::less_equal:
      return for_type(operand, Operation::less_equal, Operation::real_less_equal);
    case Op::equal:
      return for_type(operand, Operation::equal, Operation::real_equal);
    case Op::not_equal:
      return for_type(operand, Operation::not_equal, Operation::real_not_equal);
    case Op::floor_divide:
      return Operation::floor_divide;
    case Op::modulo:
      return Operation::modulo;
    case Op::divide:
      return Operation::real_divide;
    case Op::tanh:
      return Operation::real_tanh;
    case Op::exp:
      return Operation::real_exp;
    case Op::log:
      return Operation::real_log;
    case Op::sqrt:
      return Operation::real_sqrt;
    case Op::to_real:
      return Operation::to_real;
    case Op::select:
      return Operation::select;
    case Op::logical_and:
      return Operation::logical_and;
    case Op::logical_or:
      return Operation::logical_or;
    case Op::logical_not:
      return Operation::logical_not;
    case Op::integer_constant:
    case Op::real_constant:
    case Op::boolean_constant:
    case Op::variable:
    case Op::scalar:
    case Op::loop_variable:
    case Op::lookup:
    case Op::any:
      break;  // each has a case of its own
  }
  return Operation::result;
}

Operation lookup_of(DType dtype) {
  switch (dtype) {
    case DType::i32:
      return Operation::lookup_i32;
    case DType::f32:
      return Operation::lookup_f32;
    case DType::f16:
      return Operation::lookup_f16;
    case DType::bf16:
      return Operation::lookup_bf16;
  }
  return Operation::lookup_i32;
}

class StepWriter {
 public:
  explicit StepWriter(const mask::Program& program) : program_(program), schedule_(mask::schedule(program)) {}

  std::vector<Step> write() {
    write_list(schedule_.once);
    steps_.push_back({Operation::result, none, {value_of(program_.root())}, 0, 0});
    return std::move(steps_);
  }

 private:
  void write_list(const std::vector<NodeId>& list) {
    for (const NodeId id : list) write_node(id);
  }

  void write_node(NodeId id) {
    const Node& node = program_.node(id);
    switch (node.op) {
      case Op::integer_constant:
        return write_integer(id, node.integer);
      case Op::boolean_constant:
        return add(id, Operation::integer_constant, node.integer != 0 ? 1 : 0);
      case Op::real_constant:
        return add(id, Operation::integer_constant, std::bit_cast<int>(static_cast<float>(node.real)));
      case Op::variable:
        return add(id, Operation::variable, node.symbol);
      case Op::scalar:
        return add(id, node.type == ValueType::real ? Operation::real_scalar : Operation::integer_scalar, node.symbol);
      case Op::loop_variable:
        return;  // the loop's beginning has its value
      case Op::lookup:
        add(id, lookup_of(program_.tensors()[static_cast<std::size_t>(node.symbol)].dtype), 0, values_of(node));
        steps_.back().tensor = node.symbol;
        return;
      case Op::any:
        return write_loop(id);
      default:
        return add(id, operation_of(node, program_.node(node.operands.front())), 0, values_of(node));
    }
  }

  void write_integer(NodeId id, std::int64_t integer) {
    constexpr int word_bits = 32;
    if (integer == static_cast<int>(integer)) return add(id, Operation::integer_constant, static_cast<int>(integer));
    const int high = new_value();
    steps_.push_back({Operation::integer_constant, high, {}, static_cast<int>(integer >> word_bits), 0});
    add(id, Operation::append_low_bits, static_cast<int>(static_cast<std::uint32_t>(integer)), {high});
  }

  void write_loop(NodeId id) {
    const Node& node = program_.node(id);
    const int begin = value_of(node.operands[0]);
    const int end = value_of(node.operands[1]);
    const int variable = new_value();
    loop_values_[node.symbol] = variable;
    const std::size_t first = steps_.size();
    steps_.push_back({Operation::loop_begin, variable, {begin, end}, 0, 0});
    if (const auto body = schedule_.by_loop.find(node.symbol); body != schedule_.by_loop.end())
      write_list(body->second);
    steps_[first].value = static_cast<int>(steps_.size());
    // The end reads the loop's variable and bound, through the instruction that it goes back to.
    add(id, Operation::loop_end, static_cast<int>(first), {variable, value_of(node.operands[2]), end});
  }

  void add(NodeId id, Operation operation, int value, std::vector<int> from = {}) {
    values_[id] = new_value();
    steps_.push_back({operation, values_[id], std::move(from), value, 0});
  }

  int new_value() { return next_value_++; }

  [[nodiscard]] int value_of(NodeId id) const {
    const Node& node = program_.node(id);
    return node.op == Op::loop_variable ? loop_values_.at(node.symbol) : values_.at(id);
  }
  [[nodiscard]] std::vector<int> values_of(const Node& node) const {
    std::vector<int> values;
    values.reserve(node.operands.size());
    for (const NodeId operand : node.operands) values.push_back(value_of(operand));
    return values;
  }

  const mask::Program& program_;
  const mask::Schedule schedule_;
  std::vector<Step> steps_;
  std::unordered_map<NodeId, int> values_;
  std::unordered_map<int, int> loop_values_;  ///< loop number -> value of its variable
  int next_value_ = 0;
};

/// The loops that a step stands in.
class LoopNest {
 public:
  void pass(std::size_t at, const Step& step) {
    if (step.operation == Operation::loop_begin) loops_.push_back({at, static_cast<std::size_t>(step.value)});
    if (step.operation == Operation::loop_end) loops_.pop_back();
  }
  /// Until when a value is needed that was made by step `made` and is needed by step `at`, which stands in these loops:
  /// until the end of the outermost one that it comes into from outside.
  [[nodiscard]] std::size_t needed_until(std::size_t at, std::size_t made) const {
    for (const Loop& loop : loops_) {
      if (made < loop.begin) return loop.end;
    }
    return at;
  }

 private:
  struct Loop {
    std::size_t begin, end;
  };
  std::vector<Loop> loops_;  // the innermost last
};

/// For every value the last step that needs it.
std::vector<std::size_t> last_uses(const std::vector<Step>& steps) {
  std::vector<std::size_t> last(steps.size() + 1, 0);
  std::vector<std::size_t> made(steps.size() + 1, 0);
  LoopNest loops;
  for (std::size_t at = 0; at < steps.size(); ++at) {
    for (const int value : steps[at].from) {
      const auto v = static_cast<std::size_t>(value);
      last[v] = std::max(last[v], loops.needed_until(at, made[v]));
    }
    if (steps[at].to != none) made[static_cast<std::size_t>(steps[at].to)] = at;
    loops.pass(at, steps[at]);
  }
  return last;
}

class SlotWriter {
 public:
  explicit SlotWriter(const std::vector<Step>& steps)
      : steps_(steps), last_(last_uses(steps)), slot_of_(steps.size() + 1, none) {}

  /// Nothing if the slots do not suffice.
  std::optional<ProgramCode> write() {
    ProgramCode code{};
    for (std::size_t at = 0; at < steps_.size(); ++at) {
      const Step& step = steps_[at];
      // The end of a loop must not write over what the loop's next round reads.
      const bool early = step.operation == Operation::loop_end;
      if (early && !take(step.to)) return std::nullopt;
      Instruction& instruction = code.instructions[at];
      instruction = with_operands(step);
      for (const int value : step.from) release(value, at);
      release_of_loops(at);
      if (!early && step.to != none && !take(step.to)) return std::nullopt;
      if (step.to != none) instruction.to = static_cast<unsigned char>(slot(step.to));
      if (step.to != none && last_[static_cast<std::size_t>(step.to)] <= at) free_of(step.to);
    }
    return code;
  }

 private:
  [[nodiscard]] int slot(int value) const { return slot_of_[static_cast<std::size_t>(value)]; }

  bool take(int value) {
    for (int slot = 0; slot < flashspan_device::max_slots; ++slot) {
      if ((used_ >> slot & 1U) != 0) continue;
      used_ |= 1U << slot;
      slot_of_[static_cast<std::size_t>(value)] = slot;
      return true;
    }
    return false;
  }

  void free_of(int value) { used_ &= ~(1U << slot(value)); }

  void release(int value, std::size_t at) {
    const std::size_t last = last_[static_cast<std::size_t>(value)];
    if (last == at) free_of(value);
    if (last > at && steps_[last].operation == Operation::loop_end) held_[last].push_back(value);
  }

  /// What was kept for the loop that ends here.
  void release_of_loops(std::size_t at) {
    const auto held = held_.find(at);
    if (held == held_.end()) return;
    for (const int value : held->second) free_of(value);
    held_.erase(held);
  }

  [[nodiscard]] Instruction with_operands(const Step& step) const {
    Instruction instruction{step.operation, 0, 0, 0, step.value};
    const auto from = [&](std::size_t place) { return static_cast<unsigned char>(slot(step.from[place])); };
    switch (step.operation) {
      case Operation::lookup_i32:
      case Operation::lookup_f32:
      case Operation::lookup_f16:
      case Operation::lookup_bf16:
        instruction.a = static_cast<unsigned char>(step.tensor);
        instruction.b = static_cast<unsigned char>(step.from.size());
        for (std::size_t axis = 0; axis < step.from.size(); ++axis) {
          instruction.value |= from(axis) << static_cast<int>(axis) * flashspan_device::slot_bits;
        }
        return instruction;
      case Operation::select:
        instruction.value = from(2);
        break;
      default:
        break;
    }
    if (!step.from.empty()) instruction.a = from(0);
    if (step.from.size() > 1) instruction.b = from(1);
    return instruction;
  }

  const std::vector<Step>& steps_;
  const std::vector<std::size_t> last_;
  std::vector<int> slot_of_;
  std::unordered_map<std::size_t, std::vector<int>> held_;  // end of a loop -> values that it frees
  std::uint32_t used_ = 0;
};
static_assert(flashspan_device::max_slots <= 32 && flashspan_device::max_slots < 1 << flashspan_device::slot_bits);
static_assert(flashspan_device::max_lookup_rank * flashspan_device::slot_bits < 31);

Error too_large(const std::string& got, const std::string& takes) {
  return Error{ErrorCode::unsupported, "mask", got, takes + " where it is interpreted; prepare() compiles it", ""};
}

}  // namespace

Result<ProgramCode> program_code(const mask::Program& program) {
  const std::vector<Step> steps = StepWriter(program).write();
  if (steps.size() > static_cast<std::size_t>(flashspan_device::max_instructions)) {
    return too_large(std::to_string(steps.size()) + " instructions",
                     "at most " + std::to_string(flashspan_device::max_instructions));
  }
  auto code = SlotWriter(steps).write();
  if (!code) {
    return too_large("more values at a time than there is room for",
                     "at most " + std::to_string(flashspan_device::max_slots));
  }
  return *code;
}

}  // namespace flashspan::cuda
