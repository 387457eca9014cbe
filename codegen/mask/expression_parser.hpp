// expression_parser.hpp -- recursive descent over tokens: the grammar and its type rules.
#pragma once

#include <string>
#include <vector>

#include "codegen/mask/parser.hpp"
#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// What a text may be, beyond the grammar.
struct TextRules {
  std::string argument;  ///< named in errors
  bool may_use_score = true;
  int most_nested = 200;  ///< brackets, signs and conditions inside one another; bounds the stack
};

/// The program with all declarations, also those that the text does not use. Its type may be any.
[[nodiscard]] Result<Program> parse_expression(const std::string& text, const TextRules& rules,
                                               const std::vector<ScalarDeclaration>& scalars,
                                               const std::vector<TensorDeclaration>& tensors);

}  // namespace flashspan::mask
