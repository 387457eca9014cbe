// random_programs.hpp -- random expression text together with its meaning, made without any code of the library:
// every expression carries a function that computes it directly. The oracle of the property tests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "codegen/mask/bindings.hpp"
#include "codegen/mask/program.hpp"

namespace flashspan::mask::test {

/// A tensor with its logical elements, and the same laid out in memory with strides of its own.
struct Table {
  TensorDeclaration declaration;
  std::vector<std::int64_t> shape;
  std::vector<double> elements;  ///< row-major
  std::vector<std::int64_t> strides;
  std::vector<unsigned char> memory;

  [[nodiscard]] double at(const std::vector<std::int64_t>& index) const;  ///< 0 outside
  [[nodiscard]] TensorView view();
};

/// Everything that a program can ask for.
struct Environment {
  std::int64_t b = 0, h = 0, q = 0, k = 0, q_len = 0, kv_len = 0;
  float score = 0;
  std::map<std::string, std::int64_t> integers;  ///< scalars and loop variables
  std::map<std::string, float> reals;
  std::map<std::string, Table> tables;
};

/// Only the member of the expression's type counts.
struct Value {
  std::int64_t integer = 0;
  float real = 0;
  bool truth = false;
};

struct Expression {
  ValueType type = ValueType::boolean;
  std::string text;
  int level = 0;  ///< Python's precedence, see random_programs.cpp
  std::function<Value(Environment&)> value;
};

/// Random scalars and tensors under fixed names; sizes small.
[[nodiscard]] Environment random_environment(std::mt19937_64& random);
[[nodiscard]] std::vector<ScalarDeclaration> scalar_declarations(const Environment& environment);
[[nodiscard]] std::vector<TensorDeclaration> tensor_declarations(const Environment& environment);
/// Values for the declarations of `program`, by name.
[[nodiscard]] Bindings bindings_for(const Program& program, Environment& environment);

struct Grammar {
  bool may_use_score = false;
  bool may_use_reals = true;
  int depth = 4;
};
[[nodiscard]] Expression random_expression(std::mt19937_64& random, ValueType type, const Grammar& grammar);

}  // namespace flashspan::mask::test
