// expression_parser.cpp -- see expression_parser.hpp. Python's grammar, lowest precedence first:
//   conditional:  either 'if' either 'else' conditional
//   either/both/negated:  'or', 'and', 'not'
//   comparison:   infix (('<' | '<=' | '>' | '>=' | '==' | '!=') infix)*
//   infix:        '|', then '&', then '+ -', then '* / // %', each associating to the left
//   prefix:       ('-' | '~')* atom
//   atom:         number | name | name '(' ... ')' | name '[' ... ']' | '(' conditional ')'
//
// After the first error the parser stands at the end of the text, so every loop ends; nodes are then `no_node`.
#include "codegen/mask/expression_parser.hpp"

#include <algorithm>
#include <optional>

#include "codegen/mask/literals.hpp"
#include "codegen/mask/names.hpp"
#include "codegen/mask/tokens.hpp"
#include "codegen/mask/typed_nodes.hpp"

namespace flashspan::mask {
namespace {

constexpr int lowest_infix_level = 1;

int infix_level(std::string_view symbol) {
  if (symbol == "|") return 1;
  if (symbol == "&") return 2;
  if (symbol == "+" || symbol == "-") return 3;
  if (symbol == "*" || symbol == "/" || symbol == "//" || symbol == "%") return 4;
  return 0;
}

bool is_comparison(std::string_view symbol) {
  return symbol == "<" || symbol == "<=" || symbol == ">" || symbol == ">=" || symbol == "==" || symbol == "!=";
}

// What to write instead of something that other languages have; empty for all else.
std::string replacement_for(std::string_view text) {
  if (text == "=") return "'==' to compare";
  if (text == "&&") return "'&' or 'and'";
  if (text == "||") return "'|' or 'or'";
  if (text == "!") return "'~' or 'not'";
  if (text == "?") return "'a if condition else b' or where(condition, a, b)";
  if (text == "^" || text == "<<" || text == ">>") return "no operations on bits";
  if (text == "**") return "products; there is no power operator";
  if (text == "is") return "'==' to compare";
  if (text == ":") return "one index per axis; there are no slices";
  return {};
}

struct LoopInScope {
  std::string_view name;
  int number;
};

class ExpressionParser {
 public:
  ExpressionParser(const std::string& text, const TextRules& rules, std::vector<Token> tokens, Program& program)
      : text_(text), rules_(rules), tokens_(std::move(tokens)), program_(program), typed_(program) {}

  Result<void> parse_all() {
    const NodeId root = conditional();
    if (!failed_ && peek().kind != TokenKind::end) fail_expecting("an operator or the end of the text");
    if (failed_) return *error_;
    program_.set_root(root);
    return {};
  }

 private:
  // ---- tokens and errors ----

  [[nodiscard]] const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(position_ + ahead, tokens_.size() - 1)];
  }
  [[nodiscard]] bool at(std::string_view text) const { return peek().text == text; }
  Token take() {
    const Token token = peek();
    if (token.kind != TokenKind::end) ++position_;
    return token;
  }
  bool accept(std::string_view text) {
    if (!at(text) || peek().kind == TokenKind::end) return false;
    take();
    return true;
  }
  void expect(std::string_view text, const std::string& takes) {
    if (!failed_ && !accept(text)) fail_expecting(takes);
  }

  NodeId fail(const Token& token, std::string got, std::string takes) {
    if (!failed_) error_ = error_at(text_, token.offset, rules_.argument, std::move(got), std::move(takes));
    failed_ = true;
    position_ = tokens_.size() - 1;
    return no_node;
  }
  NodeId fail_expecting(const std::string& takes) {
    const Token token = peek();
    const std::string got = token.kind == TokenKind::end ? "end of text" : "'" + std::string(token.text) + "'";
    const std::string replacement = replacement_for(token.text);
    return fail(token, got, replacement.empty() ? takes : replacement);
  }
  NodeId checked(const Token& token, TypedNode result) {
    return result.node == no_node && !failed_ ? fail(token, std::move(result.got), std::move(result.takes))
                                              : result.node;
  }

  // Counts how deep the grammar has gone into itself, while it lives.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.nested_ <= parser_.rules_.most_nested) return;
      parser_.fail(parser_.peek(), "more than " + std::to_string(parser_.rules_.most_nested) + " nested levels",
                   "a flatter expression");
    }
    ~Nesting() { --parser_.nested_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // ---- grammar ----

  NodeId conditional() {
    const Nesting nesting(*this);
    const NodeId if_true = either();
    const Token token = peek();
    if (!accept("if")) return if_true;
    const NodeId condition = either();
    expect("else", "'else' and the value for a false condition");
    const NodeId if_false = conditional();
    return checked(token, typed_.select(condition, if_true, if_false));
  }

  NodeId either() {
    NodeId left = both();
    while (at("or")) {
      const Token token = take();
      left = checked(token, typed_.logical(Op::logical_or, left, both(), token.text));
    }
    return left;
  }

  NodeId both() {
    NodeId left = negated();
    while (at("and")) {
      const Token token = take();
      left = checked(token, typed_.logical(Op::logical_and, left, negated(), token.text));
    }
    return left;
  }

  NodeId negated() {
    const Token token = peek();
    if (!accept("not")) return comparison();
    const Nesting nesting(*this);
    return checked(token, typed_.logical_not(negated(), token.text));
  }

  // a < b < c is (a < b) & (b < c).
  NodeId comparison() {
    NodeId left = infix(lowest_infix_level);
    NodeId all = no_node;
    while (is_comparison(peek().text)) {
      const Token token = take();
      const NodeId right = infix(lowest_infix_level);
      const NodeId link = checked(token, typed_.compare(token.text, left, right));
      all = all == no_node ? link : checked(token, typed_.logical(Op::logical_and, all, link, "and"));
      left = right;
    }
    return all == no_node ? left : all;
  }

  NodeId infix(int lowest_level) {
    NodeId left = prefix();
    for (int level = infix_level(peek().text); level >= lowest_level; level = infix_level(peek().text)) {
      const Token token = take();
      const NodeId right = infix(level + 1);
      left = checked(token, typed_.infix(token.text, left, right));
    }
    return left;
  }

  NodeId prefix() {
    const Token token = peek();
    if (accept("~")) {
      const Nesting nesting(*this);
      return checked(token, typed_.logical_not(prefix(), token.text));
    }
    if (!accept("-")) return atom();
    if (peek().kind == TokenKind::integer || peek().kind == TokenKind::real) return number(true);
    const Nesting nesting(*this);
    return checked(token, typed_.number_function(Op::negate, {prefix()}, token.text));
  }

  NodeId atom() {
    const Token token = peek();
    if (token.kind == TokenKind::integer || token.kind == TokenKind::real) return number(false);
    if (accept("(")) {
      const NodeId inner = conditional();
      expect(")", "')'");
      return inner;
    }
    if (accept("True")) return program_.boolean(true);
    if (accept("False")) return program_.boolean(false);
    if (token.kind != TokenKind::name || is_keyword_inside_expressions(token.text)) {
      return fail_expecting("a number, a name or '('");
    }
    return named();
  }

  static bool is_keyword_inside_expressions(std::string_view text) {
    return text == "if" || text == "else" || text == "and" || text == "or" || text == "not" || text == "for" ||
           text == "in" || text == "is";
  }

  NodeId number(bool negative) {
    const Token token = take();
    const std::string got = "number '" + std::string(token.text) + "'";
    if (token.kind == TokenKind::integer) {
      const auto value = read_integer(token.text, negative);
      return value ? program_.integer(*value) : fail(token, got, "integers of 64 bits");
    }
    const auto value = read_real(token.text);
    if (!value) return fail(token, got, "reals up to 3.4e38");
    return program_.real(negative ? -*value : *value);
  }

  NodeId named() {
    const Token token = take();
    for (const LoopInScope& loop : loops_) {
      if (loop.name == token.text) return loop_variable(loop.number);
    }
    if (token.text == "any") return any(token);
    if (const Function* function = find_function(token.text); function != nullptr) return call(token, *function);
    if (const auto variable = variable_from_string(token.text)) {
      if (*variable == Variable::score && !rules_.may_use_score) {
        return fail(token, "'score'", "b, h, q, k, q_len, kv_len; only a score program may use 'score'");
      }
      return program_.variable(*variable);
    }
    for (std::size_t place = 0; place < program_.scalars().size(); ++place) {
      if (program_.scalars()[place].name == token.text) return scalar(static_cast<int>(place));
    }
    for (std::size_t place = 0; place < program_.tensors().size(); ++place) {
      if (program_.tensors()[place].name == token.text) return lookup(token, static_cast<int>(place));
    }
    return fail_unknown(token);
  }

  NodeId fail_unknown(const Token& token) {
    std::vector<std::string> known = values_in_scope();
    std::string takes;
    for (const std::string& name : known) takes += (takes.empty() ? "" : ", ") + name;
    if (peek().text == "(") {
      takes = "the functions min, max, abs, where, float, tanh, exp, log, sqrt, any";
      known.insert(known.end(), {"min", "max", "abs", "where", "float", "tanh", "exp", "log", "sqrt", "any"});
    }
    known.insert(known.end(), {"True", "False"});
    const std::string nearest = nearest_name(token.text, known);
    if (!nearest.empty()) takes += "; did you mean '" + nearest + "'?";
    return fail(token, "unknown name '" + std::string(token.text) + "'", takes);
  }

  std::vector<std::string> values_in_scope() const {
    std::vector<std::string> names;
    for (int number = 0; number < variable_count; ++number) {
      const auto variable = static_cast<Variable>(number);
      if (variable != Variable::score || rules_.may_use_score) names.emplace_back(to_string(variable));
    }
    for (const ScalarDeclaration& scalar : program_.scalars()) names.push_back(scalar.name);
    for (const TensorDeclaration& tensor : program_.tensors()) names.push_back(tensor.name);
    for (const LoopInScope& loop : loops_) names.emplace_back(loop.name);
    return names;
  }

  NodeId loop_variable(int loop) {
    Node node;
    node.op = Op::loop_variable;
    node.symbol = loop;
    return program_.add(std::move(node));
  }

  NodeId scalar(int place) {
    Node node;
    node.op = Op::scalar;
    node.type = program_.scalars()[static_cast<std::size_t>(place)].type;
    node.symbol = place;
    return program_.add(std::move(node));
  }

  NodeId lookup(const Token& token, int place) {
    const TensorDeclaration& tensor = program_.tensors()[static_cast<std::size_t>(place)];
    const auto axes = static_cast<std::size_t>(tensor.rank);
    const std::string takes = std::to_string(axes) + (axes == 1 ? " index" : " indices") + " in brackets, one per axis";
    if (!at("[")) return fail(token, "tensor '" + tensor.name + "' without an index", takes);
    take();
    const std::vector<NodeId> indices = list_until("]");
    if (failed_) return no_node;
    if (indices.size() != axes) {
      return fail(token, "'" + tensor.name + "' with " + std::to_string(indices.size()) + " indices", takes);
    }
    return checked(token, typed_.lookup(place, indices));
  }

  // Comma-separated values up to and including `closing`; a comma may also stand behind the last.
  std::vector<NodeId> list_until(std::string_view closing) {
    std::vector<NodeId> values;
    while (!failed_ && !accept(closing)) {
      values.push_back(conditional());
      if (at(closing)) continue;
      expect(",", "',' or '" + std::string(closing) + "'");
    }
    return values;
  }

  NodeId call(const Token& token, const Function& function) {
    const std::string name(function.name);
    if (!at("(")) return fail(token, "function '" + name + "' without arguments", name + "(...)");
    take();
    const std::vector<NodeId> arguments = list_until(")");
    if (failed_) return no_node;
    if (arguments.size() < function.fewest_arguments || arguments.size() > function.most_arguments) {
      const bool open = function.most_arguments > function.fewest_arguments;
      return fail(token, name + " with " + std::to_string(arguments.size()) + " arguments",
                  (open ? "at least " : "exactly ") + std::to_string(function.fewest_arguments));
    }
    return checked(token, typed_.call(function, arguments));
  }

  // any(body for name in range(begin, end)): the loop's name and range stand behind the body, but are read first.
  NodeId any(const Token& token) {
    const std::string form = "any(condition for r in range(begin, end))";
    if (!accept("(")) return fail(token, "'any' without a loop", form);
    const std::size_t body = position_;
    const std::size_t loop = find_loop();
    if (loop == 0) return fail(token, "'any' without a loop", form);
    position_ = loop + 1;
    const LoopInScope scope = loop_name(form);
    expect("in", form);
    expect("range", form);
    expect("(", form);
    const Token range = peek();
    std::vector<NodeId> bounds = list_until(")");
    if (!failed_ && (bounds.empty() || bounds.size() > 2)) {
      return fail(range, "range with " + std::to_string(bounds.size()) + " arguments",
                  "range(end) or range(begin, end)");
    }
    expect(")", "')' behind the range");
    if (failed_) return no_node;
    if (bounds.size() == 1) bounds.insert(bounds.begin(), program_.integer(0));
    const std::size_t behind = position_;
    position_ = body;
    loops_.push_back(scope);
    const NodeId condition = conditional();
    loops_.pop_back();
    if (failed_) return no_node;
    if (position_ != loop) return fail_expecting("an operator or 'for'");
    position_ = behind;
    return checked(token, typed_.any(scope.number, bounds[0], bounds[1], condition));
  }

  // Place of the `for` that belongs to the bracket just opened; 0 if there is none.
  [[nodiscard]] std::size_t find_loop() const {
    int open = 0;
    for (std::size_t place = position_; place < tokens_.size() && open >= 0; ++place) {
      const std::string_view text = tokens_[place].text;
      if (open == 0 && text == "for") return place;
      if (text == "(" || text == "[") ++open;
      if (text == ")" || text == "]") --open;
    }
    return 0;
  }

  LoopInScope loop_name(const std::string& form) {
    const Token token = peek();
    if (token.kind != TokenKind::name) fail_expecting(form);
    if (failed_) return {};
    bool taken = is_reserved(token.text);
    for (const std::string& name : values_in_scope()) taken = taken || name == token.text;
    if (taken) fail(token, "loop name '" + std::string(token.text) + "'", "a name that nothing else has");
    take();
    return {.name = token.text, .number = loop_count_++};
  }

  const std::string& text_;
  const TextRules& rules_;
  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  Program& program_;
  TypedNodes typed_;
  std::vector<LoopInScope> loops_;
  int loop_count_ = 0;
  int nested_ = 0;
  bool failed_ = false;
  std::optional<Error> error_;
};

}  // namespace

Result<Program> parse_expression(const std::string& text, const TextRules& rules,
                                 const std::vector<ScalarDeclaration>& scalars,
                                 const std::vector<TensorDeclaration>& tensors) {
  if (auto checked = check_declarations(scalars, tensors); !checked) return checked.error();
  auto tokens = tokenize(text, rules.argument);
  if (!tokens) return tokens.error();
  Program program(scalars, tensors);
  program.set_source(text);
  ExpressionParser parser(text, rules, *std::move(tokens), program);
  if (auto parsed = parser.parse_all(); !parsed) return parsed.error();
  return program;
}

}  // namespace flashspan::mask
