// parser.cpp -- mask and score text to Program, and signatures back to Program.
#include "codegen/mask/parser.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "codegen/mask/expression_parser.hpp"
#include "codegen/mask/rebuild.hpp"
#include "codegen/mask/tokens.hpp"

namespace flashspan::mask {
namespace {

/// Longest text that a user may give, in bytes.
constexpr std::size_t max_text_length = std::size_t{1} << 16;
/// Most operations that the canonical text of it may have. Chained comparisons repeat their middle operand, so
/// a short text could otherwise stand for an exponentially long one.
constexpr std::int64_t max_operations = std::int64_t{1} << 16;
/// Signatures come from programs that were parsed once; rewriting may have made them somewhat deeper.
constexpr int max_nested_in_signature = 400;

// Operations that the canonical text has, each shared node counted as often as it is written.
std::int64_t written_operations(const Program& program) {
  std::vector<std::int64_t> counts;
  counts.reserve(program.nodes().size());
  for (const Node& node : program.nodes()) {
    std::int64_t count = 1;
    for (const NodeId operand : node.operands) count += counts[static_cast<std::size_t>(operand)];
    counts.push_back(std::min(count, max_operations + 1));
  }
  return counts[static_cast<std::size_t>(program.root())];
}

Error bad_signature(const std::string& got) {
  return {.code = ErrorCode::bad_expression,
          .argument = "signature",
          .got = got,
          .takes = "what to_signature() gives",
          .detail = {}};
}

// "doc: i32[1]" or "left: int", appended to the declarations.
bool read_declaration(const std::string& text, std::vector<ScalarDeclaration>& scalars,
                      std::vector<TensorDeclaration>& tensors) {
  const std::size_t colon = text.find(": ");
  if (colon == std::string::npos) return false;
  const std::string name = text.substr(0, colon);
  const std::string type = text.substr(colon + 2);
  for (const ValueType scalar : {ValueType::integer, ValueType::real}) {
    if (type == to_string(scalar)) {
      scalars.push_back({.name = name, .type = scalar});
      return true;
    }
  }
  const std::size_t bracket = type.find('[');
  const auto dtype = dtype_from_string(type.substr(0, bracket));
  if (bracket == std::string::npos || !dtype || type.back() != ']') return false;
  int rank = 0;
  const char* end = type.data() + type.size() - 1;
  const auto read = std::from_chars(type.data() + bracket + 1, end, rank);
  if (read.ec != std::errc() || read.ptr != end) return false;
  tensors.push_back({.name = name, .dtype = *dtype, .rank = rank});
  return true;
}

}  // namespace

Result<Program> parse(const std::string& text, ProgramKind kind, const std::vector<ScalarDeclaration>& scalars,
                      const std::vector<TensorDeclaration>& tensors) {
  const TextRules rules{.argument = kind == ProgramKind::mask ? "mask" : "score",
                        .may_use_score = kind == ProgramKind::score};
  if (text.size() > max_text_length) {
    return Error{.code = ErrorCode::bad_expression,
                 .argument = rules.argument,
                 .got = "text of " + std::to_string(text.size()) + " bytes",
                 .takes = "at most " + std::to_string(max_text_length),
                 .detail = {}};
  }
  auto parsed = parse_expression(text, rules, scalars, tensors);
  if (!parsed) return parsed;
  Program program = *std::move(parsed);
  const bool is_boolean = program.type() == ValueType::boolean;
  if (is_boolean != (kind == ProgramKind::mask)) {
    return error_at(text, text.find_first_not_of(" \t\r\n\f\v"), rules.argument,
                    std::string("an expression of type ") + to_string(program.type()),
                    kind == ProgramKind::mask ? "a bool: true where the key is visible" : "a number: the new score");
  }
  if (program.type() == ValueType::integer) program.set_root(program.unary(Op::to_real, program.root()));
  if (written_operations(program) > max_operations) {
    return error_at(text, 0, rules.argument, "more than " + std::to_string(max_operations) + " operations",
                    "a smaller expression (chained comparisons count their middle operand twice)");
  }
  return rebuild(program, Declarations::drop_unused);
}

Result<Program> Program::from_signature(const std::string& signature) {
  std::vector<ScalarDeclaration> scalars;
  std::vector<TensorDeclaration> tensors;
  std::size_t position = 0;
  for (std::size_t end = signature.find("; "); end != std::string::npos; end = signature.find("; ", position)) {
    const std::string declaration = signature.substr(position, end - position);
    if (!read_declaration(declaration, scalars, tensors)) return bad_signature("declaration '" + declaration + "'");
    position = end + 2;
  }
  const TextRules rules{.argument = "signature", .may_use_score = true, .most_nested = max_nested_in_signature};
  auto program = parse_expression(signature.substr(position), rules, scalars, tensors);
  if (!program) return program;
  return rebuild(*program, Declarations::keep_all);
}

}  // namespace flashspan::mask
