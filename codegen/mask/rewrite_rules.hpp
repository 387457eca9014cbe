// rewrite_rules.hpp -- the laws that simplify() applies to one node whose operands are simplified already.
#pragma once

#include <optional>

#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// Nodes of `program`, each simplified as it is added.
class Rewriter {
 public:
  explicit Rewriter(Program& program) : program_(program) {}

  /// The simplest known node equal to `node`, whose operands are nodes of the program.
  NodeId add(Node node);

 private:
  NodeId unary(Op op, NodeId operand);
  NodeId binary(Op op, NodeId left, NodeId right);
  void order_operands(Node& node) const;
  [[nodiscard]] int compare(NodeId left, NodeId right) const;

  // Each gives the replacement, or nothing if its laws do not apply.
  std::optional<NodeId> fold_constants(const Node& node);
  std::optional<NodeId> simplify_sum(const Node& node);
  std::optional<NodeId> simplify_product(const Node& node);
  std::optional<NodeId> simplify_division(const Node& node);
  std::optional<NodeId> simplify_extremum(const Node& node);
  std::optional<NodeId> simplify_sign(const Node& node);
  std::optional<NodeId> simplify_comparison(const Node& node);
  std::optional<NodeId> simplify_junction(const Node& node);
  std::optional<NodeId> simplify_negation(const Node& node);
  std::optional<NodeId> simplify_choice(const Node& node);
  std::optional<NodeId> simplify_any(const Node& node);

  [[nodiscard]] const Node& operand(const Node& node, std::size_t place) const {
    return program_.node(node.operands[place]);
  }
  [[nodiscard]] bool is_integer(NodeId node, std::int64_t value) const;
  [[nodiscard]] bool is_real(NodeId node, float value) const;  // tells 0.0 from -0.0
  [[nodiscard]] bool is_boolean(NodeId node, bool value) const;
  [[nodiscard]] bool are_opposite(NodeId left, NodeId right) const;
  [[nodiscard]] bool uses_loop(NodeId node, int loop) const;
  void remember(NodeId node);

  Program& program_;
  std::vector<int> depths_;  // per node, 0 for leaves
};

}  // namespace flashspan::mask
