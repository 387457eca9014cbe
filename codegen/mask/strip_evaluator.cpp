// strip_evaluator.cpp -- see strip_evaluator.hpp.
#include "codegen/mask/strip_evaluator.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "codegen/mask/arithmetic.hpp"
#include "codegen/mask/element.hpp"

namespace flashspan::mask {

StripEvaluator::StripEvaluator(const Program& program, const Bindings& bindings, int width)
    : program_(program),
      bindings_(bindings),
      width_(static_cast<std::size_t>(width)),
      schedule_(schedule(program)),
      integers_(program.nodes().size() * width_),
      reals_(program.nodes().size() * width_) {
  loop_nodes_.assign(static_cast<std::size_t>(program.fresh_loop()), -1);
  for (NodeId id = 0; id < static_cast<NodeId>(program.nodes().size()); ++id) {
    const Node& node = program.node(id);
    if (node.op == Op::loop_variable) loop_nodes_[static_cast<std::size_t>(node.symbol)] = id;
  }
  find_stages();
  for (const NodeId id : schedule_.once) by_stage_[static_cast<int>(stage(id))].push_back(id);
}

void StripEvaluator::find_stages() {
  for (const VariableSet set : program_.dependencies_by_node()) {
    const bool strip = (set & (set_of(Variable::k) | set_of(Variable::score))) != 0;
    const bool query = (set & set_of(Variable::q)) != 0;
    stages_.push_back(strip ? Stage::strip : query ? Stage::query : Stage::head);
  }
  // A loop's variable changes with what the loop's begin changes with, and so does all that uses it. A body stands
  // before its bounds, so one pass is not enough where loops stand inside loops.
  bool changed = true;
  while (changed) {
    changed = false;
    for (NodeId id = 0; id < static_cast<NodeId>(program_.nodes().size()); ++id) {
      const Node& node = program_.node(id);
      for (const NodeId operand : node.operands) changed |= raise_stage(id, stage(operand));
      const NodeId variable = node.op == Op::any ? loop_nodes_[static_cast<std::size_t>(node.symbol)] : -1;
      if (variable >= 0) changed |= raise_stage(variable, stage(node.operands[0]));
    }
  }
}

bool StripEvaluator::raise_stage(NodeId node, Stage at_least) {
  Stage& stage = stages_[static_cast<std::size_t>(node)];
  if (stage >= at_least) return false;
  stage = at_least;
  return true;
}

void StripEvaluator::set_head(std::int64_t b, std::int64_t h, std::int64_t q_len, std::int64_t kv_len) {
  b_ = b;
  h_ = h;
  q_len_ = q_len;
  kv_len_ = kv_len;
  run(by_stage_[static_cast<int>(Stage::head)]);
}

void StripEvaluator::set_query(std::int64_t q) {
  q_ = q;
  run(by_stage_[static_cast<int>(Stage::query)]);
}

void StripEvaluator::evaluate(std::int64_t k, int count, std::span<const float> scores) {
  assert(count >= 1 && static_cast<std::size_t>(count) <= width_);
  k_ = k;
  count_ = static_cast<std::size_t>(count);
  scores_ = scores;
  run(by_stage_[static_cast<int>(Stage::strip)]);
}

void StripEvaluator::run(const std::vector<NodeId>& list) {
  for (const NodeId id : list) compute(id);
}

template <>
std::vector<std::int64_t>& StripEvaluator::lanes_of<std::int64_t>() {
  return integers_;
}
template <>
std::vector<float>& StripEvaluator::lanes_of<float>() {
  return reals_;
}

template <typename Result, typename Operand, typename Function>
void StripEvaluator::unary(NodeId id, const Node& node, Function function) {
  Result* out = lanes_of<Result>().data() + first_lane(id);
  const Operand* operand = lanes_of<Operand>().data() + first_lane(node.operands[0]);
  for (std::size_t lane = 0; lane < lanes(id); ++lane) out[lane] = static_cast<Result>(function(operand[lane]));
}

template <typename Result, typename Operand, typename Function>
void StripEvaluator::binary(NodeId id, const Node& node, Function function) {
  Result* out = lanes_of<Result>().data() + first_lane(id);
  const Operand* left = lanes_of<Operand>().data() + first_lane(node.operands[0]);
  const Operand* right = lanes_of<Operand>().data() + first_lane(node.operands[1]);
  const std::size_t left_step = is_wide(node.operands[0]) ? 1 : 0;
  const std::size_t right_step = is_wide(node.operands[1]) ? 1 : 0;
  for (std::size_t lane = 0; lane < lanes(id); ++lane) {
    out[lane] = static_cast<Result>(function(left[lane * left_step], right[lane * right_step]));
  }
}

template <typename Value>
void StripEvaluator::choose(NodeId id, const Node& node) {
  Value* out = lanes_of<Value>().data() + first_lane(id);
  const std::int64_t* condition = integers_.data() + first_lane(node.operands[0]);
  const Value* if_true = lanes_of<Value>().data() + first_lane(node.operands[1]);
  const Value* if_false = lanes_of<Value>().data() + first_lane(node.operands[2]);
  const std::size_t condition_step = is_wide(node.operands[0]) ? 1 : 0;
  const std::size_t true_step = is_wide(node.operands[1]) ? 1 : 0;
  const std::size_t false_step = is_wide(node.operands[2]) ? 1 : 0;
  for (std::size_t lane = 0; lane < lanes(id); ++lane) {
    out[lane] = condition[lane * condition_step] != 0 ? if_true[lane * true_step] : if_false[lane * false_step];
  }
}

void StripEvaluator::compute(NodeId id) {
  const Node& node = program_.node(id);
  if (node.op == Op::loop_variable) return;  // set by the loop
  if (node.op == Op::variable) return compute_variable(id, static_cast<Variable>(node.symbol));
  if (node.op == Op::lookup) return compute_lookup(id, node);
  if (node.op == Op::any) return compute_any(id, node);
  if (node.op == Op::select) {
    return node.type == ValueType::real ? choose<float>(id, node) : choose<std::int64_t>(id, node);
  }
  switch (node.type) {
    case ValueType::boolean:
      return compute_boolean(id, node);
    case ValueType::integer:
      return compute_integer(id, node);
    case ValueType::real:
      return compute_real(id, node);
  }
}

void StripEvaluator::compute_variable(NodeId id, Variable variable) {
  std::int64_t* out = integers_.data() + first_lane(id);
  switch (variable) {
    case Variable::b:
      out[0] = b_;
      return;
    case Variable::h:
      out[0] = h_;
      return;
    case Variable::q:
      out[0] = q_;
      return;
    case Variable::q_len:
      out[0] = q_len_;
      return;
    case Variable::kv_len:
      out[0] = kv_len_;
      return;
    case Variable::k:
      for (std::size_t lane = 0; lane < count_; ++lane) out[lane] = k_ + static_cast<std::int64_t>(lane);
      return;
    case Variable::score:
      assert(scores_.size() >= count_);
      std::copy_n(scores_.begin(), count_, reals_.begin() + static_cast<std::ptrdiff_t>(first_lane(id)));
      return;
  }
}

void StripEvaluator::compute_lookup(NodeId id, const Node& node) {
  const TensorView& view = bindings_.tensors[static_cast<std::size_t>(node.symbol)];
  for (std::size_t lane = 0; lane < lanes(id); ++lane) {
    std::int64_t offset = 0;
    bool inside = true;
    for (std::size_t axis = 0; axis < node.operands.size(); ++axis) {
      const NodeId operand = node.operands[axis];
      const std::int64_t index = integers_[first_lane(operand) + (is_wide(operand) ? lane : 0)];
      inside = inside && index >= 0 && index < view.shape[axis];
      if (inside) offset += index * view.strides[axis];
    }
    const std::size_t place = first_lane(id) + lane;
    if (node.type == ValueType::integer) {
      integers_[place] = inside ? integer_element(view, offset) : 0;
    } else {
      reals_[place] = inside ? real_element(view, offset) : 0.0f;
    }
  }
}

// Follows the loop for all lanes at once, each lane from its own begin, while some lane is open.
void StripEvaluator::compute_any(NodeId id, const Node& node) {
  const auto body = schedule_.by_loop.find(node.symbol);
  const NodeId around = std::exchange(around_, id);
  std::size_t open = open_lanes(id, node, around);
  for (std::int64_t turn = 0; open > 0; ++turn) {
    set_loop_variable(node, turn);
    if (body != schedule_.by_loop.end()) run(body->second);
    open = still_open_lanes(id, node, turn);
  }
  around_ = around;
}

// A lane that the loop around has done with is not asked for: its bounds may be what the language never gives them.
std::size_t StripEvaluator::open_lanes(NodeId id, const Node& node, NodeId around) {
  std::int64_t* out = integers_.data() + first_lane(id);
  const bool has_all = around < 0 || !is_wide(id);
  const std::int64_t* asked = has_all ? nullptr : integers_.data() + first_lane(around);
  const Lanes begin = operand_lanes(node, 0);
  const Lanes end = operand_lanes(node, 1);
  std::size_t open = 0;
  for (std::size_t lane = 0; lane < lanes(id); ++lane) {
    const bool runs = begin.at(lane) < end.at(lane) && (has_all || asked[lane] == open_lane);
    out[lane] = runs ? open_lane : 0;
    open += runs ? 1 : 0;
  }
  return open;
}

void StripEvaluator::set_loop_variable(const Node& node, std::int64_t turn) {
  const NodeId variable = loop_nodes_[static_cast<std::size_t>(node.symbol)];
  if (variable < 0) return;
  std::int64_t* out = integers_.data() + first_lane(variable);
  const Lanes begin = operand_lanes(node, 0);
  for (std::size_t lane = 0; lane < lanes(variable); ++lane) out[lane] = wrapping_add(begin.at(lane), turn);
}

std::size_t StripEvaluator::still_open_lanes(NodeId id, const Node& node, std::int64_t turn) {
  std::int64_t* out = integers_.data() + first_lane(id);
  const Lanes begin = operand_lanes(node, 0);
  const Lanes end = operand_lanes(node, 1);
  const Lanes holds = operand_lanes(node, 2);
  std::size_t open = 0;
  for (std::size_t lane = 0; lane < lanes(id); ++lane) {
    if (out[lane] != open_lane) continue;
    const bool was_last = wrapping_add(begin.at(lane), turn) == end.at(lane) - 1;
    out[lane] = holds.at(lane) != 0 ? 1 : was_last ? 0 : open_lane;
    open += out[lane] == open_lane ? 1 : 0;
  }
  return open;
}

void StripEvaluator::compute_boolean(NodeId id, const Node& node) {
  using Integer = std::int64_t;
  const bool of_reals = !node.operands.empty() && program_.node(node.operands[0]).type == ValueType::real;
  const auto compare = [&](auto function) {
    of_reals ? binary<Integer, float>(id, node, function) : binary<Integer, Integer>(id, node, function);
  };
  switch (node.op) {
    case Op::boolean_constant:
      integers_[first_lane(id)] = node.integer;
      return;
    case Op::less:
      return compare([](auto a, auto b) { return a < b; });
    case Op::less_equal:
      return compare([](auto a, auto b) { return a <= b; });
    case Op::equal:
      return compare([](auto a, auto b) { return a == b; });
    case Op::not_equal:
      return compare([](auto a, auto b) { return a != b; });
    case Op::logical_and:
      return binary<Integer, Integer>(id, node, [](Integer a, Integer b) { return a & b; });
    case Op::logical_or:
      return binary<Integer, Integer>(id, node, [](Integer a, Integer b) { return a | b; });
    case Op::logical_not:
      return unary<Integer, Integer>(id, node, [](Integer a) { return a ^ 1; });
    case Op::integer_constant:
    case Op::real_constant:
    case Op::variable:
    case Op::scalar:
    case Op::loop_variable:
    case Op::lookup:
    case Op::add:
    case Op::subtract:
    case Op::multiply:
    case Op::minimum:
    case Op::maximum:
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
    case Op::any:
      break;
  }
  assert(false && "not a boolean operation");
}

void StripEvaluator::compute_integer(NodeId id, const Node& node) {
  using Integer = std::int64_t;
  switch (node.op) {
    case Op::integer_constant:
      integers_[first_lane(id)] = node.integer;
      return;
    case Op::scalar:
      integers_[first_lane(id)] = bindings_.scalars[static_cast<std::size_t>(node.symbol)].integer;
      return;
    case Op::add:
      return binary<Integer, Integer>(id, node, wrapping_add);
    case Op::subtract:
      return binary<Integer, Integer>(id, node, wrapping_subtract);
    case Op::multiply:
      return binary<Integer, Integer>(id, node, wrapping_multiply);
    case Op::minimum:
      return binary<Integer, Integer>(id, node, minimum<Integer>);
    case Op::maximum:
      return binary<Integer, Integer>(id, node, maximum<Integer>);
    case Op::negate:
      return unary<Integer, Integer>(id, node, wrapping_negate);
    case Op::absolute:
      return unary<Integer, Integer>(id, node, wrapping_absolute);
    case Op::floor_divide:
      return binary<Integer, Integer>(id, node, floor_divide);
    case Op::modulo:
      return binary<Integer, Integer>(id, node, floor_modulo);
    case Op::real_constant:
    case Op::boolean_constant:
    case Op::variable:
    case Op::loop_variable:
    case Op::lookup:
    case Op::divide:
    case Op::tanh:
    case Op::exp:
    case Op::log:
    case Op::sqrt:
    case Op::to_real:
    case Op::select:
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
  assert(false && "not an integer operation");
}

void StripEvaluator::compute_real(NodeId id, const Node& node) {
  switch (node.op) {
    case Op::real_constant:
      reals_[first_lane(id)] = static_cast<float>(node.real);
      return;
    case Op::scalar:
      reals_[first_lane(id)] = bindings_.scalars[static_cast<std::size_t>(node.symbol)].real;
      return;
    case Op::add:
      return binary<float, float>(id, node, [](float a, float b) { return a + b; });
    case Op::subtract:
      return binary<float, float>(id, node, [](float a, float b) { return a - b; });
    case Op::multiply:
      return binary<float, float>(id, node, [](float a, float b) { return a * b; });
    case Op::divide:
      return binary<float, float>(id, node, [](float a, float b) { return divide(a, b); });
    case Op::minimum:
      return binary<float, float>(id, node, minimum<float>);
    case Op::maximum:
      return binary<float, float>(id, node, maximum<float>);
    case Op::negate:
      return unary<float, float>(id, node, [](float a) { return -a; });
    case Op::absolute:
      return unary<float, float>(id, node, [](float a) { return std::fabs(a); });
    case Op::tanh:
      return unary<float, float>(id, node, [](float a) { return std::tanh(a); });
    case Op::exp:
      return unary<float, float>(id, node, [](float a) { return std::exp(a); });
    case Op::log:
      return unary<float, float>(id, node, [](float a) { return std::log(a); });
    case Op::sqrt:
      return unary<float, float>(id, node, [](float a) { return std::sqrt(a); });
    case Op::to_real:
      return unary<float, std::int64_t>(id, node, [](std::int64_t a) { return static_cast<float>(a); });
    case Op::integer_constant:
    case Op::boolean_constant:
    case Op::variable:
    case Op::loop_variable:
    case Op::lookup:
    case Op::floor_divide:
    case Op::modulo:
    case Op::select:
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
  assert(false && "not a real operation");
}

}  // namespace flashspan::mask
