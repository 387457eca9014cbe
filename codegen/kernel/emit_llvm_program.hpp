// emit_llvm_program.hpp -- ProgramEmitter: the nodes of a mask or score program as LLVM instructions. A node that
// varies with k (or the score) is a vector over 16 neighbouring keys, any other a scalar; integers are 32 bits wide
// where value_ranges() proves that exact, else 64. Nothing traps: divisors and indices are made safe first.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/kernel/emit_llvm_writer.hpp"
#include "codegen/mask/program.hpp"
#include "codegen/mask/tile_intervals.hpp"

namespace flashspan::kernel {

/// An emitted value of a program.
struct IrValue {
  enum class Kind { boolean, int32, int64, real };
  std::string name;
  Kind kind = Kind::boolean;
  bool vector = false;
};

class ProgramEmitter {
 public:
  /// Loop nests in which a node's value is constant, outermost first.
  enum class Level { tile, key_vector, row };

  ProgramEmitter(IrWriter& ir, const mask::Program& program);

  /// Loads the tensors' addresses, extents and strides and the scalars from the function's %program argument.
  void load_program_data();
  void set_variable(mask::Variable variable, IrValue value);
  /// Emits, at the current position, every node that belongs to `level`.
  void emit_level(Level level);
  /// The root's value as a vector, once every level is emitted.
  [[nodiscard]] std::string root_vector();
  /// Of a root that is a lookup: a vector of the numbers of the elements that it finds, counted row by row in 64 bits;
  /// -1 for those outside the tensor.
  [[nodiscard]] std::string element_number_vector();

 private:
  struct Tensor {
    std::string data;
    std::vector<std::string> extents;
    std::vector<std::string> strides;
  };

  [[nodiscard]] Level level_of(mask::NodeId id) const;
  [[nodiscard]] IrValue::Kind integer_kind(mask::NodeId id) const;
  [[nodiscard]] const IrValue& value(mask::NodeId id) const { return values_[static_cast<std::size_t>(id)]; }

  IrValue emit(mask::NodeId id);
  IrValue emit_leaf(mask::NodeId id);
  IrValue emit_arithmetic(mask::NodeId id);
  IrValue emit_integer_arithmetic(mask::NodeId id);
  IrValue emit_real_arithmetic(mask::NodeId id);
  IrValue emit_division(mask::NodeId id);
  IrValue emit_constant_division(mask::NodeId id, IrValue dividend, long long divisor);
  IrValue emit_quotient_in_doubles(const IrValue& dividend, const IrValue& divisor);
  IrValue emit_elementary(mask::NodeId id);
  IrValue emit_lookup(mask::NodeId id);
  IrValue emit_select(mask::NodeId id);
  IrValue emit_comparison(mask::NodeId id);
  IrValue emit_logic(mask::NodeId id);
  IrValue emit_any(mask::NodeId id);
  /// The part of the graph below `id` that depends on loop `loop`, emitted at the current position.
  IrValue emit_loop_body(mask::NodeId id, int loop);

  IrValue as_vector(const IrValue& value);
  IrValue as_kind(const IrValue& value, IrValue::Kind kind);
  void make_alike(IrValue& left, IrValue& right);
  IrValue operation(const char* name, const IrValue& left, const IrValue& right);
  IrValue compare(const char* instruction, const IrValue& left, const IrValue& right);
  IrValue choose(const IrValue& condition, IrValue if_true, IrValue if_false);
  [[nodiscard]] IrValue constant(long long number, const IrValue& like) const;

  IrWriter& ir_;
  const mask::Program& program_;
  std::vector<mask::Interval> ranges_;
  std::vector<mask::VariableSet> dependencies_;
  std::vector<std::vector<int>> free_loops_;
  std::vector<bool> needed_;
  std::vector<IrValue> values_;
  std::vector<Tensor> tensors_;
  std::vector<IrValue> scalars_;
  std::map<mask::Variable, IrValue> variables_;
  std::map<int, IrValue> loop_variables_;
};

[[nodiscard]] std::string type_of(const IrValue& value);

}  // namespace flashspan::kernel
