// lowering.cpp -- see lowering.hpp.
#include "codegen/mask/lowering.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "codegen/mask/rebuild.hpp"
#include "codegen/mask/visible_ranges.hpp"

namespace flashspan::mask {
namespace {

// More ranges, or ends that take longer to compute, cost more than looking bits up.
constexpr std::size_t most_cheap_ranges = 2;
constexpr std::size_t most_end_operations = 64;

bool shows_everything(const Program& program) {
  const Node& root = program.node(program.root());
  return root.op == Op::boolean_constant && root.integer != 0;
}

bool depends_on_head(const Program& program) { return (program.dependencies() & set_of(Variable::h)) != 0; }

std::string counted(std::size_t count) { return std::to_string(count) + (count == 1 ? " range" : " ranges"); }

std::string what_ranges_are(Variable axis) {
  return axis == Variable::k ? "for each query the visible keys form " : "for each key the queries that see it form ";
}

// Why ranges would be slow; nothing if they would not.
std::string cost_of(const VisibleRanges& visible) {
  if (visible.ranges.size() > most_cheap_ranges) {
    return counted(visible.ranges.size()) + ", of which " + std::to_string(most_cheap_ranges) + " are cheap";
  }
  std::vector<NodeId> ends;
  for (const IndexRange& range : visible.ranges) ends.insert(ends.end(), {range.begin, range.end});
  const std::vector<NodeId> live = live_nodes(visible.program, ends);
  const auto loops = [&](NodeId id) { return visible.program.node(id).op == Op::any; };
  if (std::any_of(live.begin(), live.end(), loops)) return "the ends take a loop";
  if (live.size() <= most_end_operations) return "";
  return "the ends take " + std::to_string(live.size()) + " operations";
}

Lowering as_expression(Direction direction, const std::string& more) {
  return {.kind = LoweringKind::expression,
          .reason = std::string(to_string(direction)) +
                    ": tiles that interval analysis leaves open evaluate the mask element by element" + more};
}

// Kernels that hold rows of queries, or of keys, apply ranges along the other axis with few instructions.
struct RangeLowering {
  LoweringKind kind;
  Variable axis;
};
constexpr std::array forward_ranges{RangeLowering{LoweringKind::row_ranges, Variable::k},
                                    RangeLowering{LoweringKind::column_bounds, Variable::q}};
constexpr std::array backward_ranges{RangeLowering{LoweringKind::column_bounds, Variable::q}};

std::span<const RangeLowering> range_lowerings(Direction direction) {
  if (direction == Direction::forward) return forward_ranges;
  return backward_ranges;
}

Lowering lower_partial(const Program& program, Direction direction) {
  std::string others;
  for (const auto& [kind, axis] : range_lowerings(direction)) {
    const RangeDerivation derivation = derive_visible_ranges(program, axis);
    const std::string obstacle = derivation.found ? cost_of(derivation.visible) : derivation.obstacle;
    if (obstacle.empty()) {
      return {.kind = kind, .reason = what_ranges_are(axis) + counted(derivation.visible.ranges.size()) + others};
    }
    others += std::string("; not ") + to_string(kind) + ": " + obstacle;
  }
  if (!depends_on_head(program)) {
    return {.kind = LoweringKind::bit_tiles,
            .reason = "all heads share the mask, so open tiles are evaluated once, into bits" + others};
  }
  return as_expression(direction, others + "; not bit_tiles: the mask depends on h");
}

// Why `kind` cannot be had; nothing if it can.
std::string objection(const Program& program, Direction direction, LoweringKind kind) {
  if (direction == Direction::backward && kind == LoweringKind::row_ranges) {
    return "none, column_bounds, bit_tiles or expression in the backward";
  }
  const auto ranges_along = [&](Variable axis) {
    const RangeDerivation derivation = derive_visible_ranges(program, axis);
    if (derivation.found) return std::string();
    return "a mask where " + what_ranges_are(axis) + "at most " + std::to_string(max_visible_ranges) +
           " ranges; here: " + derivation.obstacle;
  };
  switch (kind) {
    case LoweringKind::none:
      return shows_everything(program) ? "" : "a mask that shows every pair";
    case LoweringKind::row_ranges:
      return ranges_along(Variable::k);
    case LoweringKind::column_bounds:
      return ranges_along(Variable::q);
    case LoweringKind::bit_tiles:
      return depends_on_head(program) ? "a mask that does not depend on h" : "";
    case LoweringKind::expression:
    case LoweringKind::interpreted:
      break;
  }
  return "";
}

}  // namespace

bool evaluates_in_few_registers(const Program& simplified) {
  constexpr std::size_t few_operations = 48;
  const std::vector<Node>& nodes = simplified.nodes();
  return nodes.size() <= few_operations && std::none_of(nodes.begin(), nodes.end(), [](const Node& node) {
           return node.op == Op::any || node.op == Op::floor_divide || node.op == Op::modulo;
         });
}

Lowering lower(const Program& simplified, Direction direction) {
  if (shows_everything(simplified)) {
    return {.kind = LoweringKind::none, .reason = "every pair is visible, whatever the data"};
  }
  return lower_partial(simplified, direction);
}

Result<Lowering> lower_as(const Program& simplified, Direction direction, LoweringKind kind) {
  if (std::string takes = objection(simplified, direction, kind); !takes.empty()) {
    return Error{ErrorCode::unsupported, std::string(to_string(direction)) + " lowering", to_string(kind),
                 std::move(takes), ""};
  }
  return Lowering{.kind = kind, .reason = "asked for"};
}

}  // namespace flashspan::mask
