// ranged_nodes.hpp -- nodes whose possible values are known as they are added, so that comparisons and bounds which
// hold for every input are decided at once.
#pragma once

#include <vector>

#include "codegen/mask/program.hpp"
#include "codegen/mask/rewrite_rules.hpp"
#include "codegen/mask/tile_intervals.hpp"

namespace flashspan::mask {

/// Nodes of `program`, which is empty to begin with; simplified as they are added.
class RangedNodes {
 public:
  explicit RangedNodes(Program& program) : program_(program), rewriter_(program) {}

  NodeId add(Node node);
  NodeId integer(std::int64_t value);
  NodeId boolean(bool value);
  NodeId variable(Variable variable);
  NodeId unary(Op op, NodeId operand);
  NodeId binary(Op op, NodeId left, NodeId right);
  NodeId minimum(NodeId left, NodeId right);
  NodeId maximum(NodeId left, NodeId right);
  NodeId select(NodeId condition, NodeId if_true, NodeId if_false);
  /// left < right and left <= right; a constant where the ranges decide it.
  NodeId less(NodeId left, NodeId right);
  NodeId less_equal(NodeId left, NodeId right);
  /// `node` brought into `bounds`.
  NodeId clamped(NodeId node, Interval bounds);

  /// A copy: adding nodes moves them.
  [[nodiscard]] Node node(NodeId id) const { return program_.node(id); }
  /// As value_ranges() gives it.
  [[nodiscard]] Interval range(NodeId id) const { return ranges_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] VariableSet dependencies(NodeId id) const { return dependencies_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] bool is_true(NodeId id) const;
  [[nodiscard]] bool is_false(NodeId id) const;

 private:
  NodeId leaf(Op op, ValueType type, std::int64_t value, int symbol);
  NodeId remember(NodeId id);

  Program& program_;
  Rewriter rewriter_;
  std::vector<Interval> ranges_;
  std::vector<VariableSet> dependencies_;
};

}  // namespace flashspan::mask
