// parsed.hpp -- short ways for tests to write programs and the data bound to them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "codegen/mask/bindings.hpp"
#include "codegen/mask/evaluate.hpp"
#include "codegen/mask/parser.hpp"

namespace flashspan::mask::test {

/// Declarations that most tests use.
inline const std::vector<ScalarDeclaration>& usual_scalars() {
  static const std::vector<ScalarDeclaration> scalars = {{.name = "left", .type = ValueType::integer},
                                                         {.name = "slope", .type = ValueType::real}};
  return scalars;
}
inline const std::vector<TensorDeclaration>& usual_tensors() {
  static const std::vector<TensorDeclaration> tensors = {{.name = "doc", .dtype = DType::i32, .rank = 1},
                                                         {.name = "lo", .dtype = DType::i32, .rank = 2},
                                                         {.name = "bias", .dtype = DType::f16, .rank = 2}};
  return tensors;
}

inline Result<Program> parse_usual(const std::string& text, ProgramKind kind = ProgramKind::mask) {
  return parse(text, kind, usual_scalars(), usual_tensors());
}

/// The program of a legal text; a failure and an empty program otherwise.
inline Program parsed(const std::string& text, ProgramKind kind = ProgramKind::mask) {
  auto program = parse_usual(text, kind);
  if (program) return *std::move(program);
  ADD_FAILURE() << program.error().message();
  Program empty;
  empty.set_root(empty.boolean(false));
  return empty;
}

inline Program parsed_with(const std::string& text, const std::vector<ScalarDeclaration>& scalars,
                           const std::vector<TensorDeclaration>& tensors, ProgramKind kind = ProgramKind::mask) {
  auto program = parse(text, kind, scalars, tensors);
  if (program) return *std::move(program);
  ADD_FAILURE() << program.error().message();
  return parsed("False");
}

/// A whole contiguous vector as a rank-1 tensor.
inline TensorView view_of(std::vector<std::int32_t>& elements) {
  return TensorView::contiguous(elements.data(), DType::i32, {static_cast<std::int64_t>(elements.size())});
}

}  // namespace flashspan::mask::test
