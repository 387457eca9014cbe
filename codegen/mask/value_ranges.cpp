// value_ranges.cpp -- ranges that hold for every call, whatever its sizes, data and scalars.
#include <limits>

#include "codegen/mask/interval_arithmetic.hpp"
#include "codegen/mask/schedule.hpp"
#include "codegen/mask/tile_intervals.hpp"

namespace flashspan::mask {
namespace {

Interval range_of_variable(Variable variable) {
  const bool is_length = variable == Variable::q_len || variable == Variable::kv_len;
  return {0, is_length ? max_sequence_length : max_sequence_length - 1};
}

class RangeAnalysis {
 public:
  explicit RangeAnalysis(const Program& program)
      : program_(program),
        schedule_(schedule(program)),
        loops_(static_cast<std::size_t>(program.fresh_loop()), whole_range),
        ranges_(program.nodes().size(), whole_range) {
    run(schedule_.once);
  }

  std::vector<Interval> take() { return std::move(ranges_); }

 private:
  void run(const std::vector<NodeId>& list) {
    for (const NodeId id : list) {
      const Node& node = program_.node(id);
      if (node.op == Op::any) follow_loop(node);
      if (node.type != ValueType::integer) continue;
      const bool is_loop = node.op == Op::loop_variable;
      ranges_[static_cast<std::size_t>(id)] =
          is_loop ? loops_[static_cast<std::size_t>(node.symbol)] : value_range(node, ranges_);
    }
  }

  // All values of the loop variable at once: begin.lo .. end.hi - 1.
  void follow_loop(const Node& node) {
    const Interval begin = ranges_[static_cast<std::size_t>(node.operands[0])];
    const Interval end = ranges_[static_cast<std::size_t>(node.operands[1])];
    const bool never_runs = begin.lo >= end.hi;
    loops_[static_cast<std::size_t>(node.symbol)] =
        never_runs ? Interval{begin.lo, begin.lo} : Interval{begin.lo, end.hi - 1};
    const auto body = schedule_.by_loop.find(node.symbol);
    if (body != schedule_.by_loop.end()) run(body->second);
  }

  const Program& program_;
  const Schedule schedule_;
  std::vector<Interval> loops_;
  std::vector<Interval> ranges_;
};

}  // namespace

Interval value_range(const Node& node, const std::vector<Interval>& ranges) {
  const auto operand = [&](std::size_t place) {
    return place < node.operands.size() ? ranges[static_cast<std::size_t>(node.operands[place])] : whole_range;
  };
  if (node.op == Op::integer_constant) return {node.integer, node.integer};
  if (node.op == Op::variable) return range_of_variable(static_cast<Variable>(node.symbol));
  if (node.op == Op::select) return hull(operand(1), operand(2));
  if (node.op == Op::lookup) {
    return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
  }
  return interval_of(node.op, operand(0), operand(1));  // scalars: the whole range
}

std::vector<Interval> value_ranges(const Program& program) { return RangeAnalysis(program).take(); }

}  // namespace flashspan::mask
