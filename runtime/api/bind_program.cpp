// bind_program.cpp -- declarations from data, program from text, and the data put in the program's order.
#include "runtime/api/bind_program.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include "codegen/mask/simplify.hpp"
#include "runtime/attention/tensor_rule.hpp"

namespace flashspan::api {

namespace {

using attention::bad_argument;

Result<mask::TensorDeclaration> declare(const NamedTensor& tensor) {
  const std::string argument = "tensor '" + tensor.name + "'";
  const std::string takes = "a tensor of i32, f32, f16 or bf16 of rank 1 to " + std::to_string(max_tensor_rank);
  const TensorView& view = tensor.view;
  if (view.rank < 1 || view.rank > max_tensor_rank) {
    return bad_argument(argument, view.given() ? "rank " + std::to_string(view.rank) : "no tensor", takes);
  }
  if (auto given = attention::check_given(argument, view, takes); !given) return given.error();
  for (int axis = 0; axis < view.rank; ++axis) {
    const std::int64_t length = view.shape[static_cast<std::size_t>(axis)];
    if (length < 0 || length > std::numeric_limits<std::int32_t>::max()) {
      return bad_argument(argument, to_string(view), "axes of 0 to 2147483647 elements");
    }
  }
  if (auto memory = attention::check_memory(argument, view); !memory) return memory.error();
  return mask::TensorDeclaration{tensor.name, view.dtype, view.rank};
}

Result<mask::ScalarDeclaration> declare(const NamedScalar& scalar) {
  const double* real = std::get_if<double>(&scalar.value);
  if (real != nullptr && !std::isfinite(static_cast<float>(*real))) {
    return bad_argument("scalar '" + scalar.name + "'", std::to_string(*real), "a finite number that fits binary32");
  }
  return mask::ScalarDeclaration{scalar.name, real != nullptr ? mask::ValueType::real : mask::ValueType::integer};
}

mask::ScalarValue value_of(const NamedScalar& scalar) {
  mask::ScalarValue value;
  if (const auto* integer = std::get_if<std::int64_t>(&scalar.value)) {
    value.integer = *integer;
    value.real = static_cast<float>(*integer);
  } else {
    value.real = static_cast<float>(std::get<double>(scalar.value));
  }
  return value;
}

template <typename Declarations>
std::string names_of(const Declarations& declarations) {
  std::string text;
  for (const auto& declaration : declarations) text += (text.empty() ? "" : ", ") + declaration.name;
  return text.empty() ? "none" : text;
}

/// Data that the text never mentions is a misspelt name more often than a wish.
template <typename Given, typename Used>
Result<void> check_used(const char* kind, const Given& given, const Used& used) {
  for (const auto& item : given) {
    const bool found =
        std::ranges::any_of(used, [&](const auto& declaration) { return declaration.name == item.name; });
    if (!found) {
      return bad_argument(std::string(kind) + " '" + item.name + "'", "a name that the expression does not use",
                          std::string(kind) + "s of the expression: " + names_of(used));
    }
  }
  return {};
}

template <typename Items>
const auto& named(const Items& items, const std::string& name) {
  return *std::ranges::find_if(items, [&](const auto& item) { return item.name == name; });
}

}  // namespace

Result<attention::BoundProgram> bind_program(const std::string& text, mask::ProgramKind kind, const NamedData& data) {
  std::vector<mask::TensorDeclaration> tensors;
  for (const NamedTensor& tensor : data.tensors) {
    auto declaration = declare(tensor);
    if (!declaration) return declaration.error();
    tensors.push_back(std::move(*declaration));
  }
  std::vector<mask::ScalarDeclaration> scalars;
  for (const NamedScalar& scalar : data.scalars) {
    auto declaration = declare(scalar);
    if (!declaration) return declaration.error();
    scalars.push_back(std::move(*declaration));
  }
  const auto parsed = mask::parse(text, kind, scalars, tensors);
  if (!parsed) return parsed.error();
  if (auto used = check_used("tensor", data.tensors, parsed->tensors()); !used) return used.error();
  if (auto used = check_used("scalar", data.scalars, parsed->scalars()); !used) return used.error();

  attention::BoundProgram bound;
  bound.program = mask::simplify(*parsed);
  bound.program.set_source(text);
  bound.signature = bound.program.to_signature();
  for (const auto& declaration : bound.program.tensors()) {
    bound.bindings.tensors.push_back(named(data.tensors, declaration.name).view);
  }
  for (const auto& declaration : bound.program.scalars()) {
    bound.bindings.scalars.push_back(value_of(named(data.scalars, declaration.name)));
  }
  return bound;
}

Mask finish_mask(MaskState state) {
  state.signature = state.program.to_signature();
  state.forward_lowering = mask::lower(state.program, Direction::forward);
  state.backward_lowering = mask::lower(state.program, Direction::backward);
  state.light = mask::evaluates_in_few_registers(state.program);
  return Mask(std::make_shared<const MaskState>(std::move(state)));
}

Result<Mask> build_mask(const std::string& text, const NamedData& data, const AttentionShape& shape) {
  auto bound = bind_program(text, mask::ProgramKind::mask, data);
  if (!bound) return bound.error();
  MaskState state;
  static_cast<attention::BoundProgram&>(state) = std::move(*bound);
  state.bound_shapes.push_back(shape);
  return finish_mask(std::move(state));
}

}  // namespace flashspan::api
