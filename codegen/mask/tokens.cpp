// tokens.cpp -- see tokens.hpp.
#include "codegen/mask/tokens.hpp"

#include <algorithm>
#include <array>

namespace flashspan::mask {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_letter(c) || is_digit(c); }
bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }
bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }  // UTF-8

// Longest first. Those that only Python has are cut as one token too, so that the parser can name them.
constexpr std::array<std::string_view, 34> symbols = {
    "**", "//", "<<", ">>", "==", "!=", "<=", ">=", ":=", "&&", "||", "->", "+", "-", "*", "/", "%",
    "<",  ">",  "=",  "&",  "|",  "^",  "~",  "!",  "(",  ")",  "[",  "]",  ",", ":", ".", "?", "@"};

// Length of the number that starts `text`, and its kind. Everything that looks like a part of it is taken in,
// so that "12abc" is one bad number and not a number followed by a name.
struct NumberExtent {
  std::size_t length = 0;
  TokenKind kind = TokenKind::integer;
};

NumberExtent extent_of_number(std::string_view text) {
  NumberExtent extent;
  const bool hexadecimal = text.size() > 1 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool exponent = !hexadecimal && (c == 'e' || c == 'E');
    const bool sign = (c == '+' || c == '-') && !hexadecimal && i > 0 && (text[i - 1] == 'e' || text[i - 1] == 'E');
    if (!is_name_part(c) && c != '.' && !sign) break;
    if (c == '.' || exponent) extent.kind = TokenKind::real;
    extent.length = i + 1;
  }
  return extent;
}

// Digits with single underscores between them, as in Python.
bool is_digit_run(std::string_view text, bool hexadecimal) {
  bool after_digit = false;
  for (const char c : text) {
    const bool hexadecimal_letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    const bool digit = is_digit(c) || (hexadecimal && hexadecimal_letter);
    if (!digit && !(c == '_' && after_digit)) return false;
    after_digit = digit;
  }
  return after_digit;
}

bool is_well_formed_integer(std::string_view text) {
  if (text.size() > 2 && (text[1] == 'x' || text[1] == 'X')) return is_digit_run(text.substr(2), true);
  if (!is_digit_run(text, false)) return false;
  // Python refuses "017", which other languages read as octal.
  return text[0] != '0' || text.find_first_not_of("0_") == std::string_view::npos;
}

// digits? ('.' digits?)? (('e'|'E') sign? digits)?, with at least one digit before the exponent.
bool is_well_formed_real(std::string_view text) {
  const std::size_t exponent = text.find_first_of("eE");
  std::string_view mantissa = text.substr(0, exponent);
  if (exponent != std::string_view::npos) {
    std::string_view digits = text.substr(exponent + 1);
    if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) digits.remove_prefix(1);
    if (!is_digit_run(digits, false)) return false;
  }
  const std::size_t point = mantissa.find('.');
  const std::string_view whole = mantissa.substr(0, point);
  const std::string_view fraction = point == std::string_view::npos ? std::string_view() : mantissa.substr(point + 1);
  return (!whole.empty() || !fraction.empty()) && (whole.empty() || is_digit_run(whole, false)) &&
         (fraction.empty() || is_digit_run(fraction, false));
}

std::string_view symbol_at(std::string_view text) {
  for (const std::string_view symbol : symbols) {
    if (text.substr(0, symbol.size()) == symbol) return symbol;
  }
  return {};
}

std::string_view name_at(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() && is_name_part(text[length])) ++length;
  return text.substr(0, length);
}

// The character at the start of `text`, quoted for a message.
std::string quoted_character(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && !starts_character(text[length])) ++length;
  const auto byte = static_cast<unsigned char>(text[0]);
  if (is_ascii(text[0]) && (byte < 0x20 || byte == 0x7f)) return "control character " + std::to_string(byte);
  return "character '" + std::string(text.substr(0, length)) + "'";
}

}  // namespace

Error error_at(std::string_view text, std::size_t offset, const std::string& argument, std::string got,
               std::string takes) {
  offset = std::min(offset, text.size());
  const std::size_t previous_end = offset == 0 ? std::string_view::npos : text.find_last_of("\r\n", offset - 1);
  const std::size_t begin = previous_end == std::string_view::npos ? 0 : previous_end + 1;
  const std::size_t end = std::min(text.find_first_of("\r\n", offset), text.size());
  std::string caret;
  for (const char c : text.substr(begin, offset - begin)) {
    if (c == '\t') caret += '\t';
    if (c != '\t' && starts_character(c)) caret += ' ';
  }
  return {.code = ErrorCode::bad_expression,
          .argument = argument,
          .got = std::move(got),
          .takes = std::move(takes),
          .detail = std::string(text.substr(begin, end - begin)) + "\n" + caret + "^"};
}

Result<std::vector<Token>> tokenize(std::string_view text, const std::string& argument) {
  std::vector<Token> tokens;
  std::size_t position = 0;
  while (position < text.size()) {
    const std::string_view rest = text.substr(position);
    const bool number = is_digit(rest[0]) || (rest[0] == '.' && rest.size() > 1 && is_digit(rest[1]));
    Token token{.kind = TokenKind::symbol, .text = {}, .offset = position};
    if (is_blank(rest[0])) {
      ++position;
      continue;
    }
    if (number) {
      const NumberExtent extent = extent_of_number(rest);
      token.kind = extent.kind;
      token.text = rest.substr(0, extent.length);
      const bool well_formed =
          extent.kind == TokenKind::real ? is_well_formed_real(token.text) : is_well_formed_integer(token.text);
      if (!well_formed) {
        return error_at(text, position, argument, "number '" + std::string(token.text) + "'",
                        "numbers such as 12, 1_000, 0xff, 0.5, 1e-3");
      }
    } else if (is_letter(rest[0])) {
      token.kind = TokenKind::name;
      token.text = name_at(rest);
    } else {
      token.text = symbol_at(rest);
    }
    if (token.text.empty()) {
      return error_at(text, position, argument, quoted_character(rest),
                      "names, numbers and the operators + - * / // % < <= > >= == != & | ~ ( ) [ ] ,");
    }
    position += token.text.size();
    tokens.push_back(token);
  }
  const std::size_t end = tokens.empty() ? 0 : tokens.back().offset + tokens.back().text.size();
  tokens.push_back({.kind = TokenKind::end, .text = {}, .offset = end});
  return tokens;
}

}  // namespace flashspan::mask
