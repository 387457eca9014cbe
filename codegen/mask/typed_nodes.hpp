// typed_nodes.hpp -- nodes from operands of any type: converts integers to reals where they meet, and tells
// what is wrong where types do not fit. Used by the parser.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/mask/names.hpp"
#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// Stands for a node that could not be made; as an operand it silently gives no_node again.
inline constexpr NodeId no_node = -1;

/// The node, or no_node and what is wrong.
struct TypedNode {
  NodeId node = no_node;
  std::string got;
  std::string takes;
};

class TypedNodes {
 public:
  explicit TypedNodes(Program& program) : program_(program) {}

  /// + - * / // % & | by their symbols.
  TypedNode infix(std::string_view symbol, NodeId left, NodeId right);
  /// < <= > >= == != by their symbols. Two booleans may be compared for equality.
  TypedNode compare(std::string_view symbol, NodeId left, NodeId right);
  TypedNode logical(Op op, NodeId left, NodeId right, std::string_view written);
  TypedNode logical_not(NodeId operand, std::string_view written);
  TypedNode select(NodeId condition, NodeId if_true, NodeId if_false);
  /// `op` over one number or a chain of two and more, all of one type after conversion.
  TypedNode number_function(Op op, std::vector<NodeId> operands, std::string_view written);
  /// One function of the table, the number of arguments being right.
  TypedNode call(const Function& function, const std::vector<NodeId>& arguments);
  TypedNode lookup(int tensor, const std::vector<NodeId>& indices);
  TypedNode any(int loop, NodeId begin, NodeId end, NodeId body);

 private:
  [[nodiscard]] ValueType type(NodeId node) const { return program_.node(node).type; }
  [[nodiscard]] bool any_missing(const std::vector<NodeId>& operands) const;
  [[nodiscard]] std::string types_of(const std::vector<NodeId>& operands) const;
  TypedNode as_real(NodeId operand, std::string_view written);
  /// Converts integers if there is a real among them.
  void to_common_type(std::vector<NodeId>& operands);
  TypedNode integer_operation(Op op, NodeId left, NodeId right, std::string_view written);

  Program& program_;
};

}  // namespace flashspan::mask
