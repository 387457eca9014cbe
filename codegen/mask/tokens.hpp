// tokens.hpp -- expression text cut into tokens, and the error that points at one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flashspan/core/error.hpp"

namespace flashspan::mask {

enum class TokenKind { end, name, integer, real, symbol };

/// `text` is a part of the parsed string; `offset` is where it starts.
struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;
  std::size_t offset = 0;
};

/// Cuts `text` into tokens; the last is of kind `end` and stands just behind the others. Blanks, tabs and line ends are
/// alike. Error: bad_expression for a character or a number that the language does not have.
[[nodiscard]] Result<std::vector<Token>> tokenize(std::string_view text, const std::string& argument);

/// A bad_expression error about `argument`, with the line of `text` that holds `offset` and a caret under it.
[[nodiscard]] Error error_at(std::string_view text, std::size_t offset, const std::string& argument, std::string got,
                             std::string takes);

}  // namespace flashspan::mask
