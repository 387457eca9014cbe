// names.cpp -- see names.hpp.
#include "codegen/mask/names.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>

#include "flashspan/core/tensor.hpp"

namespace flashspan::mask {
namespace {

constexpr std::size_t any_number = std::numeric_limits<std::size_t>::max();

constexpr std::array<Function, 9> functions = {{
    {"min", Op::minimum, 2, any_number},
    {"max", Op::maximum, 2, any_number},
    {"abs", Op::absolute, 1, 1},
    {"where", Op::select, 3, 3},
    {"float", Op::to_real, 1, 1},
    {"tanh", Op::tanh, 1, 1},
    {"exp", Op::exp, 1, 1},
    {"log", Op::log, 1, 1},
    {"sqrt", Op::sqrt, 1, 1},
}};

constexpr std::array<std::string_view, 37> keywords = {
    "False",    "None",   "True",  "and",  "as",     "assert",   "async",   "await", "break", "class",
    "continue", "def",    "del",   "elif", "else",   "except",   "finally", "for",   "from",  "global",
    "if",       "import", "in",    "is",   "lambda", "nonlocal", "not",     "or",    "pass",  "raise",
    "return",   "try",    "while", "with", "yield",  "any",      "range"};

// What other libraries call our variables and functions.
constexpr std::array<std::array<std::string_view, 2>, 10> foreign_names = {{{"q_idx", "q"},
                                                                            {"kv_idx", "k"},
                                                                            {"k_idx", "k"},
                                                                            {"batch", "b"},
                                                                            {"head", "h"},
                                                                            {"seqlen_q", "q_len"},
                                                                            {"seqlen_k", "kv_len"},
                                                                            {"k_len", "kv_len"},
                                                                            {"minimum", "min"},
                                                                            {"maximum", "max"}}};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// Levenshtein distance.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

bool is_plain_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto part = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), part);
}

Error bad_declaration(const std::string& argument, std::string got, std::string takes) {
  return {.code = ErrorCode::bad_argument,
          .argument = argument,
          .got = std::move(got),
          .takes = std::move(takes),
          .detail = {}};
}

Result<void> check_name(const std::string& name, const char* what, std::set<std::string>& seen) {
  if (!is_plain_name(name)) {
    return bad_declaration(what, "the name '" + name + "'", "letters, digits and '_', a letter or '_' first");
  }
  if (is_reserved(name)) return bad_declaration(what, "the reserved name '" + name + "'", "a name of its own");
  if (!seen.insert(name).second) return bad_declaration(what, "the name '" + name + "' twice", "every name once");
  return {};
}

}  // namespace

const Function* find_function(std::string_view name) {
  for (const Function& function : functions) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

std::optional<Variable> variable_from_string(std::string_view name) {
  for (int number = 0; number < variable_count; ++number) {
    const auto variable = static_cast<Variable>(number);
    if (name == to_string(variable)) return variable;
  }
  return std::nullopt;
}

bool is_reserved(std::string_view name) {
  return find_function(name) != nullptr || variable_from_string(name).has_value() ||
         std::find(keywords.begin(), keywords.end(), name) != keywords.end();
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  for (const auto& [foreign, ours] : foreign_names) {
    if (name == foreign) return std::string(ours);
  }
  std::string nearest;
  std::size_t nearest_distance = std::max<std::size_t>(name.size(), 2) / 2 + 1;  // farther is no misspelling
  const std::string wanted = lower_case(name);
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(wanted, lower_case(candidate));
    const bool shares_a_letter = distance < std::max(name.size(), candidate.size());
    if (shares_a_letter && distance < nearest_distance) {
      nearest = candidate;
      nearest_distance = distance;
    }
  }
  return nearest;
}

Result<void> check_declarations(const std::vector<ScalarDeclaration>& scalars,
                                const std::vector<TensorDeclaration>& tensors) {
  std::set<std::string> seen;
  for (const ScalarDeclaration& scalar : scalars) {
    if (auto checked = check_name(scalar.name, "scalar", seen); !checked) return checked;
    if (scalar.type == ValueType::boolean) return bad_declaration(scalar.name, "a bool scalar", "an int or a real");
  }
  for (const TensorDeclaration& tensor : tensors) {
    if (auto checked = check_name(tensor.name, "tensor", seen); !checked) return checked;
    if (tensor.rank < 1 || tensor.rank > max_tensor_rank) {
      return bad_declaration(tensor.name, std::to_string(tensor.rank) + " axes",
                             "1 to " + std::to_string(max_tensor_rank) + " axes");
    }
  }
  return {};
}

}  // namespace flashspan::mask
