// parser.hpp -- expression text to Program. Errors carry the column of the offending token.
#pragma once

#include <string>
#include <vector>

#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// What the text is for: a mask must have type boolean and may not use `score`; a score must be a number.
enum class ProgramKind { mask, score };

/// Parses the expression subset of Python described in docs/mask-language.md. Every scalar and tensor that
/// the text uses must be declared; declared ones that it does not use are dropped from the program.
/// Error: bad_expression, with `detail` = the text and a caret under the column.
[[nodiscard]] Result<Program> parse(const std::string& text, ProgramKind kind,
                                    const std::vector<ScalarDeclaration>& scalars,
                                    const std::vector<TensorDeclaration>& tensors);

}  // namespace flashspan::mask
