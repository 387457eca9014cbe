// tile_intervals.cpp -- classify(): abstract interpretation of a mask over a tile.
//
// Every node is given what it may be at some point of the tile:
//   integers  an interval (interval_arithmetic.hpp);
//   booleans  whether it can be false and whether it can be true, at least one of them;
//   reals     nothing is known, so a comparison of reals can be both.
// Nodes are taken in order, each from its operands; what a later node could know of how two operands hang
// together is not used. The rules that are not plain arithmetic:
//   a < b     can be false unless a.hi < b.lo; can be true unless a.lo >= b.hi
//   a <= b    can be false unless a.hi <= b.lo; can be true unless a.lo > b.hi
//   a == b    can be false unless both are one and the same value; can be true unless the intervals are disjoint
//   select    the operand chosen if the condition is decided, else the union of both
//   lookup    see look_up()
//   any       see follow_loop()
// The emitted device code computes the same, node by node.
#include "codegen/mask/tile_intervals.hpp"

#include <algorithm>
#include <array>

#include "codegen/mask/element.hpp"
#include "codegen/mask/interval_arithmetic.hpp"
#include "codegen/mask/schedule.hpp"

namespace flashspan::mask {
namespace {

struct Known {
  Interval range = whole_range;  // integers
  bool can_be_false = true;      // booleans
  bool can_be_true = true;
};

Known known_range(Interval range) { return {.range = range, .can_be_false = true, .can_be_true = true}; }
Known known_truth(bool can_be_false, bool can_be_true) {
  return {.range = whole_range, .can_be_false = can_be_false, .can_be_true = can_be_true};
}

constexpr Interval i32_range{.lo = std::numeric_limits<std::int32_t>::min(),
                             .hi = std::numeric_limits<std::int32_t>::max()};

// A box of element offsets in one tensor.
struct Box {
  int rank = 0;
  std::array<Interval, max_tensor_rank> indices;
};

// Distinct elements in the box (an axis of stride 0 has one), or more than max_lookup_box.
std::int64_t count_elements(const TensorView& view, const Box& box) {
  std::int64_t count = 1;
  for (int axis = 0; axis < box.rank && count <= max_lookup_box; ++axis) {
    const Interval index = box.indices[static_cast<std::size_t>(axis)];
    const bool broadcast = view.strides[static_cast<std::size_t>(axis)] == 0;
    if (!broadcast) count *= std::min(index.hi - index.lo + 1, max_lookup_box + 1);
  }
  return count;
}

// Least and greatest element of the box, axis by axis.
Interval range_of_elements(const TensorView& view, const Box& box, int axis, std::int64_t offset) {
  if (axis == box.rank) {
    const std::int64_t element = integer_element(view, offset);
    return {element, element};
  }
  const auto at = static_cast<std::size_t>(axis);
  const std::int64_t stride = view.strides[at];
  const Interval index = box.indices[at];
  Interval range = range_of_elements(view, box, axis + 1, offset + index.lo * stride);
  if (stride == 0) return range;
  for (std::int64_t i = index.lo + 1; i <= index.hi; ++i) {
    range = hull(range, range_of_elements(view, box, axis + 1, offset + i * stride));
  }
  return range;
}

class TileAnalysis {
 public:
  TileAnalysis(const Program& program, const Bindings& bindings, const TileBounds& bounds)
      : program_(program),
        bindings_(bindings),
        bounds_(bounds),
        schedule_(schedule(program)),
        loops_(static_cast<std::size_t>(program.fresh_loop())),
        known_(program.nodes().size()) {}

  Known run() {
    run(schedule_.once);
    return known_[static_cast<std::size_t>(program_.root())];
  }

 private:
  void run(const std::vector<NodeId>& list) {
    for (const NodeId id : list) known_[static_cast<std::size_t>(id)] = interpret(program_.node(id));
  }

  [[nodiscard]] const Known& operand(const Node& node, std::size_t place) const {
    return known_[static_cast<std::size_t>(node.operands[place])];
  }

  Known interpret(const Node& node) {
    switch (node.op) {
      case Op::integer_constant:
        return known_range({node.integer, node.integer});
      case Op::boolean_constant:
        return known_truth(node.integer == 0, node.integer != 0);
      case Op::variable:
        return known_range(range_of(static_cast<Variable>(node.symbol)));
      case Op::scalar:
        return scalar(node);
      case Op::loop_variable:
        return known_range(loops_[static_cast<std::size_t>(node.symbol)]);
      case Op::lookup:
        return node.type == ValueType::integer ? look_up(node) : Known();
      case Op::add:
      case Op::subtract:
      case Op::multiply:
      case Op::minimum:
      case Op::maximum:
      case Op::floor_divide:
      case Op::modulo:
        return known_range(interval_of(node.op, operand(node, 0).range, operand(node, 1).range));
      case Op::negate:
      case Op::absolute:
        return known_range(interval_of(node.op, operand(node, 0).range, whole_range));
      case Op::select:
        return choose(operand(node, 0), operand(node, 1), operand(node, 2));
      case Op::less:
      case Op::less_equal:
      case Op::equal:
      case Op::not_equal:
        return compare(node);
      case Op::logical_and:
      case Op::logical_or:
      case Op::logical_not:
        return combine(node);
      case Op::any:
        return follow_loop(node);
      case Op::real_constant:
      case Op::divide:
      case Op::tanh:
      case Op::exp:
      case Op::log:
      case Op::sqrt:
      case Op::to_real:
        break;  // reals: nothing is known
    }
    return {};
  }

  [[nodiscard]] Interval range_of(Variable variable) const {
    switch (variable) {
      case Variable::b:
        return bounds_.b;
      case Variable::h:
        return bounds_.h;
      case Variable::q:
        return bounds_.q;
      case Variable::k:
        return bounds_.k;
      case Variable::q_len:
        return {bounds_.q_len, bounds_.q_len};
      case Variable::kv_len:
        return {bounds_.kv_len, bounds_.kv_len};
      case Variable::score:
        break;
    }
    return whole_range;
  }

  [[nodiscard]] Known scalar(const Node& node) const {
    const std::int64_t value = bindings_.scalars[static_cast<std::size_t>(node.symbol)].integer;
    return node.type == ValueType::integer ? known_range({value, value}) : Known();
  }

  static Known choose(const Known& condition, const Known& if_true, const Known& if_false) {
    if (!condition.can_be_false) return if_true;
    if (!condition.can_be_true) return if_false;
    return {.range = hull(if_true.range, if_false.range),
            .can_be_false = if_true.can_be_false || if_false.can_be_false,
            .can_be_true = if_true.can_be_true || if_false.can_be_true};
  }

  [[nodiscard]] Known compare(const Node& node) const {
    if (program_.node(node.operands[0]).type == ValueType::real) return {};
    const Interval a = operand(node, 0).range;
    const Interval b = operand(node, 1).range;
    if (node.op == Op::less) return known_truth(a.hi >= b.lo, a.lo < b.hi);
    if (node.op == Op::less_equal) return known_truth(a.hi > b.lo, a.lo <= b.hi);
    const bool can_be_equal = a.lo <= b.hi && b.lo <= a.hi;
    const bool can_differ = a.lo != a.hi || b.lo != b.hi || a.lo != b.lo;
    return node.op == Op::equal ? known_truth(can_differ, can_be_equal) : known_truth(can_be_equal, can_differ);
  }

  [[nodiscard]] Known combine(const Node& node) const {
    const Known& a = operand(node, 0);
    if (node.op == Op::logical_not) return known_truth(a.can_be_true, a.can_be_false);
    const Known& b = operand(node, 1);
    if (node.op == Op::logical_and) {
      return known_truth(a.can_be_false || b.can_be_false, a.can_be_true && b.can_be_true);
    }
    return known_truth(a.can_be_false && b.can_be_false, a.can_be_true || b.can_be_true);
  }

  // The tensor is asked for a box of indices. What lies inside the tensor is looked at, if it is not too much;
  // if any index may lie outside, 0 joins.
  [[nodiscard]] Known look_up(const Node& node) const {
    const TensorView& view = bindings_.tensors[static_cast<std::size_t>(node.symbol)];
    Box box{.rank = static_cast<int>(node.operands.size()), .indices = {}};
    bool may_be_outside = false;
    for (std::size_t axis = 0; axis < node.operands.size(); ++axis) {
      const Interval index = operand(node, axis).range;
      may_be_outside = may_be_outside || index.lo < 0 || index.hi >= view.shape[axis];
      const Interval inside{std::max<std::int64_t>(index.lo, 0), std::min(index.hi, view.shape[axis] - 1)};
      if (inside.lo > inside.hi) return known_range({0, 0});
      box.indices[axis] = inside;
    }
    const bool too_large = count_elements(view, box) > max_lookup_box;
    const Interval elements = too_large ? i32_range : range_of_elements(view, box, 0, 0);
    return known_range(may_be_outside ? hull(elements, {0, 0}) : elements);
  }

  // Values that the loop variable takes at some point of the tile are begin.lo .. end.hi - 1; those it takes at
  // every point are begin.hi .. end.lo - 1. A body that surely holds at one of the latter makes the whole surely
  // true; a body that can hold at none of the former makes it surely false.
  Known follow_loop(const Node& node) {
    const Interval begin = operand(node, 0).range;
    const Interval end = operand(node, 1).range;
    if (begin.lo >= end.hi) return known_truth(true, false);
    std::int64_t trips = 0;
    if (__builtin_sub_overflow(end.hi, begin.lo, &trips) || trips > max_analysed_trips) return {};
    const auto body = schedule_.by_loop.find(node.symbol);
    Known result = known_truth(true, false);
    for (std::int64_t value = begin.lo; value < end.hi; ++value) {
      loops_[static_cast<std::size_t>(node.symbol)] = {value, value};
      if (body != schedule_.by_loop.end()) run(body->second);
      const Known& holds = operand(node, 2);
      const bool always_taken = begin.hi <= value && value < end.lo;
      if (holds.can_be_true) result.can_be_true = true;
      if (always_taken && !holds.can_be_false) return known_truth(false, true);
    }
    return result;
  }

  const Program& program_;
  const Bindings& bindings_;
  const TileBounds& bounds_;
  const Schedule schedule_;
  std::vector<Interval> loops_;  // range of every loop's variable
  std::vector<Known> known_;
};

}  // namespace

TileClass classify(const Program& program, const Bindings& bindings, const TileBounds& bounds) {
  const Known mask = TileAnalysis(program, bindings, bounds).run();
  if (!mask.can_be_true) return TileClass::empty;
  return mask.can_be_false ? TileClass::partial : TileClass::full;
}

}  // namespace flashspan::mask
