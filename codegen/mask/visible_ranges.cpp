// visible_ranges.cpp -- see visible_ranges.hpp.
//
// A comparison is taken apart from the outside in: of `a < e`, where only a depends on the axis, a's operation is
// undone on e, until a is the axis itself. With x the axis and c free of it:
//   u + c < e    is  u < e - c              c - u < e   is  u >= c - e + 1
//   u // c < e   is  u < e * c if c > 0,    u > e * c if c < 0,   0 < e if c is 0
//   u * c < e    is  u < ceil(e / c) if c > 0,   u > e // c if c < 0,   0 < e if c is 0
//   abs(u) < e   is  -e < u < e             min(u, v) < e  is  u < e or v < e
// These are laws of numbers, not of integers that wrap. So a must be small enough not to wrap, by its range over all
// inputs, and e, which may be any integer, is first brought to where a can be: for a in [lo, hi], `a < e` does not
// change when e is brought into [lo, hi + 1].
#include "codegen/mask/visible_ranges.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "codegen/mask/interval_arithmetic.hpp"
#include "codegen/mask/unroll_loops.hpp"

namespace flashspan::mask {
namespace {

// Longest `any` over constants that is written out, and the largest program that is looked at.
constexpr std::int64_t most_unrolled_trips = 4;
constexpr std::size_t most_nodes = 400;
constexpr std::size_t most_unrolled_nodes = 10 * most_nodes;  // before what is simple in them is made simple
// Nodes are visited once for every way that leads to them, so the visits are counted.
constexpr int most_visits = 1000;
// Sets of more ranges on the way are given up.
constexpr std::size_t most_ranges = 8;
// Numbers up to here are added and subtracted without a thought of wrapping.
constexpr std::int64_t largest_number = std::int64_t{1} << 61;

using Set = std::optional<IndexSet>;  // nothing: not derivable

class Derivation {
 public:
  Derivation(const Program& mask, Variable axis)
      : axis_(axis), result_(mask.scalars(), mask.tensors()), nodes_(result_), sets_(nodes_, axis) {
    std::vector<NodeId> copies;
    for (Node node : mask.nodes()) {
      for (NodeId& operand : node.operands) operand = copies[static_cast<std::size_t>(operand)];
      copies.push_back(nodes_.add(std::move(node)));
    }
    root_ = copies[static_cast<std::size_t>(mask.root())];
  }

  RangeDerivation run() {
    const Set set = result_.nodes().size() > most_nodes ? give_up_size() : where_true(root_);
    if (!set) return {.found = false, .visible = {}, .obstacle = obstacle_};
    std::vector<IndexRange> ranges = sets_.plain(*set).ranges;
    if (ranges.size() > max_visible_ranges) {
      const std::string most = std::to_string(max_visible_ranges);
      return {.found = false,
              .visible = {},
              .obstacle = std::to_string(ranges.size()) + " ranges, of which " + most + " would do"};
    }
    if (ranges.empty()) ranges.push_back({nodes_.integer(0), nodes_.integer(0)});
    write_membership(ranges);
    return {.found = true, .visible = {.program = std::move(result_), .ranges = std::move(ranges)}, .obstacle = ""};
  }

 private:
  [[nodiscard]] bool uses_axis(NodeId id) const { return (nodes_.dependencies(id) & set_of(axis_)) != 0; }

  Set give_up(NodeId at, const std::string& why) {
    if (obstacle_.empty()) {
      Program part = result_;
      part.set_root(at);
      obstacle_ = part.to_text() + " " + why;
    }
    return std::nullopt;
  }

  Set give_up_size() {
    if (obstacle_.empty()) obstacle_ = "the expression has too many operations to look through";
    return std::nullopt;
  }

  Set limited(IndexSet set) {
    if (set.ranges.size() <= most_ranges) return set;
    if (obstacle_.empty()) obstacle_ = "more than " + std::to_string(most_ranges) + " ranges";
    return std::nullopt;
  }

  static Set complement(Set set) { return set ? Set(IndexSets::complement(*std::move(set))) : std::nullopt; }
  Set intersection(const Set& a, const Set& b) { return a && b ? limited(sets_.intersection(*a, *b)) : std::nullopt; }
  Set unite(const Set& a, const Set& b) { return a && b ? limited(sets_.unite(*a, *b)) : std::nullopt; }
  Set choose(NodeId condition, const Set& a, const Set& b) {
    return a && b ? limited(sets_.choose(condition, *a, *b)) : std::nullopt;
  }

  // Where a boolean node is true.
  Set where_true(NodeId id) {
    if (!uses_axis(id)) return sets_.all_if(id);
    if (++visits_ > most_visits) return give_up_size();
    const Node node = nodes_.node(id);
    switch (node.op) {
      case Op::less:
      case Op::less_equal:
      case Op::equal:
      case Op::not_equal:
        return comparison(id, node);
      case Op::logical_and:
        return intersection(where_true(node.operands[0]), where_true(node.operands[1]));
      case Op::logical_or:
        return disjunction(node.operands[0], node.operands[1]);
      case Op::logical_not:
        return complement(where_true(node.operands[0]));
      case Op::select:
        return select(node, where_true(node.operands[1]), where_true(node.operands[2]));
      default:
        return give_up(id, "loops over what depends on " + name());
    }
  }

  // A condition without the axis would be one more range; where it joins none of the others, they take it in.
  Set disjunction(NodeId left, NodeId right) {
    if (!uses_axis(left)) std::swap(left, right);
    const Set set = where_true(left);
    Set united = unite(set, where_true(right));
    if (!united || uses_axis(right) || sets_.plain(*united).ranges.size() <= sets_.plain(*set).ranges.size()) {
      return united;
    }
    return choose(right, sets_.all(), set);
  }

  Set select(const Node& node, const Set& if_true, const Set& if_false) {
    const NodeId condition = node.operands[0];
    if (!uses_axis(condition)) return choose(condition, if_true, if_false);
    const Set holds = where_true(condition);
    return unite(intersection(holds, if_true), intersection(complement(holds), if_false));
  }

  Set comparison(NodeId id, const Node& node) {
    const NodeId left = node.operands[0];
    const NodeId right = node.operands[1];
    if (nodes_.node(left).type == ValueType::real) return give_up(id, "compares reals");
    if (uses_axis(left) && uses_axis(right)) return give_up(id, "has " + name() + " on both sides");
    const NodeId inside = uses_axis(left) ? left : right;
    const NodeId outside = uses_axis(left) ? right : left;
    if (node.op == Op::equal) return where_equal(inside, outside);
    if (node.op == Op::not_equal) return complement(where_equal(inside, outside));
    const bool or_equal = node.op == Op::less_equal;
    if (inside == left) return where_less(left, right, or_equal);
    return complement(where_less(right, left, !or_equal));  // e < a is not a <= e
  }

  [[nodiscard]] std::string name() const { return to_string(axis_); }

  [[nodiscard]] bool may_wrap(NodeId id) const {
    const Interval range = nodes_.range(id);
    return range.lo < -largest_number || range.hi > largest_number;
  }

  NodeId sum(NodeId left, NodeId right) { return nodes_.binary(Op::add, left, right); }
  NodeId difference(NodeId left, NodeId right) { return nodes_.binary(Op::subtract, left, right); }
  NodeId successor(NodeId node) { return sum(node, nodes_.integer(1)); }

  // Where a < e, or a <= e. Nothing here may wrap but `a` of min, max and choices, which compute nothing.
  Set where_less(NodeId a, NodeId e, bool or_equal) {
    if (!uses_axis(a)) return sets_.all_if(or_equal ? nodes_.less_equal(a, e) : nodes_.less(a, e));
    if (++visits_ > most_visits) return give_up_size();
    const Node node = nodes_.node(a);
    const auto of_operand = [&](std::size_t place) { return where_less(node.operands[place], e, or_equal); };
    if (node.op == Op::minimum) return unite(of_operand(0), of_operand(1));
    if (node.op == Op::maximum) return intersection(of_operand(0), of_operand(1));
    if (node.op == Op::select) return select(node, of_operand(1), of_operand(2));
    if (may_wrap(a)) return give_up(a, "may wrap");
    const Interval range = nodes_.range(a);
    const NodeId bound =
        or_equal ? successor(nodes_.clamped(e, {range.lo - 1, range.hi})) : nodes_.clamped(e, {range.lo, range.hi + 1});
    return where_below(a, node, bound);
  }

  // Where a < e, both far from wrapping.
  Set where_below(NodeId a, const Node& node, NodeId e) {
    switch (node.op) {
      case Op::variable:
        return sets_.below(e);
      case Op::add:
      case Op::subtract:
      case Op::negate:
        return where_linear(a, node, e, false);
      case Op::absolute: {
        const NodeId u = node.operands[0];
        const NodeId opposite = nodes_.unary(Op::negate, e);
        return intersection(where_less(u, e, false), complement(where_less(u, opposite, true)));
      }
      case Op::multiply:
        return where_product_below(a, node, e);
      case Op::floor_divide:
        return where_quotient_below(a, node, e);
      default:
        return give_up(a, node.op == Op::lookup ? "is looked up by " + name() : "is not linear in " + name());
    }
  }

  Set where_equal(NodeId a, NodeId e) {
    if (++visits_ > most_visits) return give_up_size();
    const Node node = nodes_.node(a);
    const Interval range = nodes_.range(a);
    const bool is_linear = node.op == Op::add || node.op == Op::subtract || node.op == Op::negate;
    if (!may_wrap(a)) {
      const NodeId value = nodes_.clamped(e, {range.lo - 1, range.hi + 1});
      if (node.op == Op::variable) return sets_.between(value, successor(value));
      if (is_linear) return where_linear(a, node, value, true);
      if (node.op == Op::floor_divide) return where_quotient_equal(a, node, value);
    }
    return intersection(where_less(a, e, true), complement(where_less(a, e, false)));
  }

  // a is a sum, a difference or an opposite; a == e if `equal`, else a < e.
  Set where_linear(NodeId a, const Node& node, NodeId e, bool equal) {
    const NodeId u = node.operands[0];
    if (node.op == Op::negate) return where_opposite(u, nodes_.unary(Op::negate, e), equal);
    const NodeId v = node.operands[1];
    if (uses_axis(u) && uses_axis(v)) return give_up(a, "has " + name() + " twice");
    const NodeId other = uses_axis(u) ? v : u;
    if (may_wrap(other)) return give_up(other, "may be any integer");
    if (node.op == Op::subtract && uses_axis(v)) return where_opposite(v, difference(u, e), equal);
    const NodeId rest = node.op == Op::subtract ? sum(e, v) : difference(e, other);
    const NodeId inside = uses_axis(u) ? u : v;
    return equal ? where_equal(inside, rest) : where_less(inside, rest, false);
  }

  // -u < -e, which is u > e.
  Set where_opposite(NodeId u, NodeId e, bool equal) {
    return equal ? where_equal(u, e) : complement(where_less(u, e, true));
  }

  // The divisor of `u`, brought to where no quotient of u changes any more; nothing if it depends on the axis.
  std::optional<NodeId> divisor_of(NodeId u, NodeId divisor) {
    if (uses_axis(divisor) || may_wrap(u)) return std::nullopt;
    const Interval range = nodes_.range(u);
    const std::int64_t most = std::max(-range.lo, range.hi) + 1;
    return nodes_.clamped(divisor, {-most, most});
  }

  /// e * c, or nothing if that may wrap.
  std::optional<NodeId> product(NodeId e, NodeId c) {
    const NodeId result = nodes_.binary(Op::multiply, e, c);
    return may_wrap(result) ? std::nullopt : std::optional(result);
  }

  Set by_sign(NodeId c, const Set& positive, const Set& negative, const Set& zero) {
    const NodeId nothing = nodes_.integer(0);
    return choose(nodes_.less(nothing, c), positive, choose(nodes_.less(c, nothing), negative, zero));
  }

  Set where_quotient_below(NodeId a, const Node& node, NodeId e) {
    const NodeId u = node.operands[0];
    const auto c = divisor_of(u, node.operands[1]);
    const auto end = c ? product(e, *c) : std::nullopt;
    if (!end) return give_up(a, "has no known sign or size");
    const Set zero = sets_.all_if(nodes_.less(nodes_.integer(0), e));
    return by_sign(*c, where_less(u, *end, false), complement(where_less(u, *end, true)), zero);
  }

  // u // c == e is e * c <= u < e * c + c if c > 0 and e * c + c < u <= e * c if c < 0.
  Set where_quotient_equal(NodeId a, const Node& node, NodeId e) {
    const NodeId u = node.operands[0];
    const auto c = divisor_of(u, node.operands[1]);
    const auto one_end = c ? product(e, *c) : std::nullopt;
    if (!one_end) return give_up(a, "has no known sign or size");
    const NodeId other_end = sum(*one_end, *c);
    const Set positive = intersection(where_less(u, other_end, false), complement(where_less(u, *one_end, false)));
    const Set negative = intersection(where_less(u, *one_end, true), complement(where_less(u, other_end, true)));
    const Set zero = sets_.all_if(nodes_.binary(Op::equal, nodes_.integer(0), e));
    return by_sign(*c, positive, negative, zero);
  }

  Set where_product_below(NodeId a, const Node& node, NodeId e) {
    const bool first = uses_axis(node.operands[0]);
    const NodeId u = node.operands[first ? 0 : 1];
    const NodeId c = node.operands[first ? 1 : 0];
    if (uses_axis(c)) return give_up(a, "has " + name() + " twice");
    const NodeId opposite = nodes_.unary(Op::negate, e);
    const NodeId ceiling = nodes_.unary(Op::negate, nodes_.binary(Op::floor_divide, opposite, c));
    const NodeId floor = nodes_.binary(Op::floor_divide, e, c);
    const Set zero = sets_.all_if(nodes_.less(nodes_.integer(0), e));
    return by_sign(c, where_less(u, ceiling, false), complement(where_less(u, floor, true)), zero);
  }

  // Plain nodes: a simplifier could take ends out that kernels ask for.
  void write_membership(const std::vector<IndexRange>& ranges) {
    const NodeId x = result_.variable(axis_);
    std::optional<NodeId> root;
    for (const IndexRange& range : ranges) {
      const NodeId inside = result_.binary(Op::logical_and, result_.binary(Op::less_equal, range.begin, x),
                                           result_.binary(Op::less, x, range.end));
      root = root ? result_.binary(Op::logical_or, *root, inside) : inside;
    }
    result_.set_root(*root);
  }

  const Variable axis_;
  Program result_;
  RangedNodes nodes_;
  IndexSets sets_;
  NodeId root_ = 0;
  int visits_ = 0;
  std::string obstacle_;
};

}  // namespace

RangeDerivation derive_visible_ranges(const Program& mask, Variable axis) {
  return Derivation(unroll_loops(mask, most_unrolled_trips, most_unrolled_nodes), axis).run();
}

}  // namespace flashspan::mask
