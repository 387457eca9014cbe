// names.hpp -- the names that expression text knows: functions, reserved words, and the nearest to a misspelt one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// A function of the language that is written as a call with plain arguments (`any` is not).
struct Function {
  std::string_view name;
  Op op = Op::minimum;
  std::size_t fewest_arguments = 1;
  std::size_t most_arguments = 1;
};

/// Entry of the function table, or null.
[[nodiscard]] const Function* find_function(std::string_view name);
[[nodiscard]] std::optional<Variable> variable_from_string(std::string_view name);
/// Variables, functions and Python's keywords: none may be declared.
[[nodiscard]] bool is_reserved(std::string_view name);
/// One of `known` that `name` may have been meant to be; empty if none is near. Case does not count.
[[nodiscard]] std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

/// Names are plain, not reserved and not given twice; scalars are numbers; tensors have 1 to 5 axes.
/// Error: bad_argument about the declared name.
[[nodiscard]] Result<void> check_declarations(const std::vector<ScalarDeclaration>& scalars,
                                              const std::vector<TensorDeclaration>& tensors);

}  // namespace flashspan::mask
