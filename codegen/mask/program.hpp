// program.hpp -- Program: a typed expression over (b, h, q, k), scalars and looked-up tensors. A mask is a
// boolean program, a score modification is a real one. Nodes are hash-consed, so equal subexpressions are
// one node, and every operand stands before its user: walking `nodes()` in order is an evaluation order.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/types.hpp"

namespace flashspan::mask {

enum class ValueType { boolean, integer, real };

/// What a node computes. Integers are 64-bit two's complement and wrap; reals are IEEE binary32.
/// Every operation is total: nothing traps, for any operand values.
enum class Op {
  // leaves
  integer_constant,
  real_constant,
  boolean_constant,
  variable,       ///< symbol = int(Variable)
  scalar,         ///< symbol = index into scalars()
  loop_variable,  ///< symbol = loop number, unique in the program
  // tensors
  lookup,  ///< symbol = index into tensors(); operands are the integer indices; outside the tensor: 0
  // arithmetic, on two integers or two reals
  add,
  subtract,
  multiply,
  minimum,
  maximum,
  negate,
  absolute,
  // integers only; rounding towards minus infinity; x // 0 == 0 and x % 0 == 0
  floor_divide,
  modulo,
  // reals only; x / 0 == 0
  divide,
  tanh,
  exp,
  log,
  sqrt,
  // conversion
  to_real,  ///< integer -> real, round to nearest
  // choice: operands (condition, value if true, value if false)
  select,
  // comparison of two integers or two reals -> boolean (> and >= are written with operands exchanged)
  less,
  less_equal,
  equal,
  not_equal,
  // boolean
  logical_and,
  logical_or,
  logical_not,
  /// operands (begin, end, body): true iff body holds for some value of loop variable `symbol` in
  /// [begin, end). Text form: any(body for r in range(begin, end)).
  any,
};

enum class Variable { b, h, q, k, q_len, kv_len, score };
inline constexpr int variable_count = 7;

using NodeId = int;

struct Node {
  Op op = Op::integer_constant;
  ValueType type = ValueType::integer;
  std::vector<NodeId> operands;
  std::int64_t integer = 0;  ///< integer_constant, boolean_constant (0 or 1)
  double real = 0;           ///< real_constant; always exactly a binary32 value
  int symbol = 0;            ///< see Op
  friend bool operator==(const Node&, const Node&) = default;
};

/// A named run-time number. Integers are passed as 64 bit, reals as binary32.
struct ScalarDeclaration {
  std::string name;
  ValueType type = ValueType::integer;
  friend bool operator==(const ScalarDeclaration&, const ScalarDeclaration&) = default;
};

/// A named run-time tensor: i32 gives integers, f32 / f16 / bf16 give reals.
struct TensorDeclaration {
  std::string name;
  DType dtype = DType::i32;
  int rank = 1;
  friend bool operator==(const TensorDeclaration&, const TensorDeclaration&) = default;
};

/// Which inputs a value depends on, as a set of bits 1 << int(Variable); loop variables do not count.
using VariableSet = unsigned;
[[nodiscard]] constexpr VariableSet set_of(Variable variable) { return 1u << static_cast<int>(variable); }

class Program {
 public:
  Program() = default;
  Program(std::vector<ScalarDeclaration> scalars, std::vector<TensorDeclaration> tensors)
      : scalars_(std::move(scalars)), tensors_(std::move(tensors)) {}

  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] const std::vector<ScalarDeclaration>& scalars() const { return scalars_; }
  [[nodiscard]] const std::vector<TensorDeclaration>& tensors() const { return tensors_; }
  [[nodiscard]] NodeId root() const { return root_; }
  [[nodiscard]] ValueType type() const { return node(root_).type; }
  /// The text the user wrote, for messages; not part of the program's identity.
  [[nodiscard]] const std::string& source() const { return source_; }

  /// The node equal to `node`, appended if there is none yet. Operand types must already fit (the parser's
  /// and the simplifier's duty; checked by assert).
  NodeId add(Node node);
  void set_root(NodeId root) { root_ = root; }
  void set_source(std::string source) { source_ = std::move(source); }
  /// A loop number that no node uses yet.
  [[nodiscard]] int fresh_loop() const;

  // Short forms of add().
  NodeId integer(std::int64_t value);
  NodeId real(double value);
  NodeId boolean(bool value);
  NodeId variable(Variable variable);
  NodeId unary(Op op, NodeId operand);
  NodeId binary(Op op, NodeId left, NodeId right);
  NodeId select(NodeId condition, NodeId if_true, NodeId if_false);

  /// Canonical expression text; parsing it with the same declarations gives an equal program.
  [[nodiscard]] std::string to_text() const;
  /// Canonical text with declarations, e.g. "doc: i32[1]; left: int; (q >= k) & ..."; the program's identity.
  [[nodiscard]] std::string to_signature() const;
  /// Inverse of to_signature().
  static Result<Program> from_signature(const std::string& signature);
  /// Inputs that the root depends on.
  [[nodiscard]] VariableSet dependencies() const { return nodes_.empty() ? 0u : node_dependencies(root_); }
  /// The same, for every node in order; and for every node the loops it stands inside by its free loop variables.
  [[nodiscard]] const std::vector<VariableSet>& dependencies_by_node() const { return dependencies_; }
  [[nodiscard]] std::vector<std::vector<int>> free_loops_by_node() const;

 private:
  [[nodiscard]] VariableSet node_dependencies(NodeId id) const { return dependencies_[static_cast<std::size_t>(id)]; }

  std::vector<Node> nodes_;
  std::vector<VariableSet> dependencies_;  // of each node
  std::unordered_multimap<std::uint64_t, NodeId> index_;
  std::vector<ScalarDeclaration> scalars_;
  std::vector<TensorDeclaration> tensors_;
  NodeId root_ = 0;
  std::string source_;
};

/// Names as they are written in expression text.
[[nodiscard]] const char* to_string(Variable variable);
[[nodiscard]] const char* to_string(ValueType type);

}  // namespace flashspan::mask
