// unroll_loops.cpp -- see unroll_loops.hpp.
#include "codegen/mask/unroll_loops.hpp"

#include <map>

#include "codegen/mask/schedule.hpp"
#include "codegen/mask/simplify.hpp"

namespace flashspan::mask {
namespace {

// Copies nodes as an evaluation would compute them: the body of an unrolled loop once for each value.
class Unroller {
 public:
  Unroller(const Program& program, std::int64_t most_trips, std::size_t most_copies)
      : program_(program),
        most_trips_(most_trips),
        most_copies_(most_copies),
        schedule_(schedule(program)),
        result_(program.scalars(), program.tensors()),
        copies_(program.nodes().size(), -1) {}

  Program run() {
    copy(schedule_.once);
    result_.set_root(copy_of(program_.root()));
    result_.set_source(program_.source());
    return std::move(result_);
  }

 private:
  void copy(const std::vector<NodeId>& list) {
    for (const NodeId id : list) copies_[static_cast<std::size_t>(id)] = copied(program_.node(id));
  }

  [[nodiscard]] NodeId copy_of(NodeId id) const { return copies_[static_cast<std::size_t>(id)]; }

  NodeId copied(const Node& node) {
    ++made_;
    if (node.op == Op::loop_variable) return loop_values_.at(node.symbol);
    if (node.op == Op::any) return has_few_trips(node) ? unrolled(node) : kept(node);
    Node copy = node;
    for (NodeId& operand : copy.operands) operand = copy_of(operand);
    return result_.add(std::move(copy));
  }

  [[nodiscard]] bool has_few_trips(const Node& node) const {
    if (made_ > most_copies_) return false;  // loops in loops: each multiplies what is inside
    const Node& begin = program_.node(node.operands[0]);
    const Node& end = program_.node(node.operands[1]);
    std::int64_t trips = 0;
    return begin.op == Op::integer_constant && end.op == Op::integer_constant &&
           !__builtin_sub_overflow(end.integer, begin.integer, &trips) && trips <= most_trips_;
  }

  NodeId unrolled(const Node& node) {
    NodeId result = result_.boolean(false);
    const std::int64_t end = program_.node(node.operands[1]).integer;
    for (std::int64_t value = program_.node(node.operands[0]).integer; value < end; ++value) {
      result = result_.binary(Op::logical_or, result, body_with(node, result_.integer(value)));
    }
    return result;
  }

  // A loop number of its own for every copy: a loop inside an unrolled one becomes several.
  NodeId kept(const Node& node) {
    Node variable;
    variable.op = Op::loop_variable;
    variable.type = ValueType::integer;
    variable.symbol = next_loop_++;
    Node copy = node;
    copy.symbol = variable.symbol;
    copy.operands = {copy_of(node.operands[0]), copy_of(node.operands[1]),
                     body_with(node, result_.add(std::move(variable)))};
    return result_.add(std::move(copy));
  }

  NodeId body_with(const Node& node, NodeId loop_value) {
    loop_values_[node.symbol] = loop_value;
    if (const auto body = schedule_.by_loop.find(node.symbol); body != schedule_.by_loop.end()) copy(body->second);
    return copy_of(node.operands[2]);
  }

  const Program& program_;
  const std::int64_t most_trips_;
  const std::size_t most_copies_;
  const Schedule schedule_;
  Program result_;
  std::vector<NodeId> copies_;
  std::map<int, NodeId> loop_values_;
  int next_loop_ = 0;
  std::size_t made_ = 0;
};

}  // namespace

Program unroll_loops(const Program& program, std::int64_t most_trips, std::size_t most_copies) {
  return simplify(Unroller(program, most_trips, most_copies).run(), Declarations::keep_all);
}

}  // namespace flashspan::mask
