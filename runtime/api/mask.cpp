// mask.cpp -- Mask from text or by name, and what a mask says about itself.
#include "flashspan/mask.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "codegen/mask/named_masks.hpp"
#include "codegen/mask/names.hpp"
#include "codegen/mask/tokens.hpp"
#include "runtime/api/bind_program.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/attention/validate_program.hpp"

namespace flashspan {

namespace {

using attention::bad_argument;

/// The tensors that a named mask asks for are all there, with the dtype and rank it asks for.
Result<void> check_named_tensors(const mask::NamedMask& named, const std::vector<NamedTensor>& tensors) {
  for (const mask::TensorDeclaration& needed : named.tensors) {
    const std::string argument = "tensor '" + needed.name + "'";
    const std::string takes = "for '" + named.name + "' a tensor of " + to_string(needed.dtype) + " of rank " +
                              std::to_string(needed.rank) + " (" + named.meaning + ")";
    const auto given = std::ranges::find(tensors, needed.name, &NamedTensor::name);
    if (given == tensors.end()) return bad_argument(argument, "no tensor of that name", takes);
    if (given->view.dtype != needed.dtype || given->view.rank != needed.rank) {
      return bad_argument(argument, to_string(given->view), takes);
    }
  }
  return {};
}

Mask mask_of(attention::BoundProgram bound, bool exact) {
  MaskState state;
  static_cast<attention::BoundProgram&>(state) = std::move(bound);
  state.axis_rules = attention::axis_rules_of(state.program, exact);
  return api::finish_mask(std::move(state));
}

/// `source` is the text that messages show.
Result<Mask> bind_named(const mask::NamedMaskCall& call, api::NamedData data, const std::string& source) {
  if (auto checked = check_named_tensors(*call.mask, data.tensors); !checked) return checked.error();
  for (std::size_t index = 0; index < call.values.size(); ++index) {
    data.scalars.push_back({call.mask->arguments[index].name, call.values[index]});
  }
  auto bound = api::bind_program(call.mask->text, mask::ProgramKind::mask, data);
  if (!bound) return bound.error();
  bound->program.set_source(source);
  return mask_of(std::move(*bound), /*exact=*/true);
}

/// A mask of the catalogue that takes no tensors; it is there, and its values are in range.
Mask from_catalogue(const char* name, std::vector<std::int64_t> values) {
  return *bind_named({mask::find_named_mask(name), std::move(values)}, {}, name);
}

}  // namespace

Result<Mask> Mask::parse(const std::string& text, const std::vector<NamedTensor>& tensors,
                         const std::vector<NamedScalar>& scalars) {
  const auto named = mask::parse_named_mask(text);
  if (!named) return named.error();
  if (named->has_value()) return bind_named(**named, {tensors, scalars}, text);
  auto bound = api::bind_program(text, mask::ProgramKind::mask, {tensors, scalars});
  if (!bound) return bound.error();
  return mask_of(std::move(*bound), /*exact=*/false);
}

Result<std::vector<std::string>> names_in(const std::string& text) {
  std::vector<std::string> names;
  const auto named = mask::parse_named_mask(text);
  if (!named) return named.error();
  if (named->has_value()) {
    for (const mask::TensorDeclaration& tensor : (*named)->mask->tensors) names.push_back(tensor.name);
    return names;
  }
  const auto tokens = mask::tokenize(text, "expression");
  if (!tokens) return tokens.error();
  for (const mask::Token& token : *tokens) {
    if (token.kind != mask::TokenKind::name || mask::is_reserved(token.text)) continue;
    if (std::ranges::find(names, token.text) == names.end()) names.emplace_back(token.text);
  }
  return names;
}

Mask Mask::full() { return from_catalogue("full", {}); }

Mask Mask::causal(bool top_left) { return from_catalogue("causal", {top_left ? 1 : 0}); }

Result<Mask> Mask::window(std::optional<std::int64_t> left, std::optional<std::int64_t> right) {
  const auto check = [](const char* argument, const std::optional<std::int64_t>& bound) -> Result<void> {
    if (!bound || *bound >= 0) return {};
    return bad_argument(argument, std::to_string(*bound), "0 or more, or nothing for no bound");
  };
  if (auto checked = check("left", left); !checked) return checked.error();
  if (auto checked = check("right", right); !checked) return checked.error();
  return from_catalogue("window", {left.value_or(max_sequence_length), right.value_or(max_sequence_length)});
}

Result<Mask> Mask::with_lowering(Direction direction, LoweringKind kind) const {
  auto lowering = mask::lower_as(state_->program, direction, kind);
  if (!lowering) return lowering.error();
  auto state = std::make_shared<MaskState>(*state_);
  (direction == Direction::forward ? state->forward_lowering : state->backward_lowering) = std::move(*lowering);
  return Mask(std::move(state));
}

std::optional<Device> Mask::device() const {
  if (state_->bindings.tensors.empty()) return std::nullopt;
  return state_->bindings.tensors.front().device;
}

std::string Mask::text() const { return state_->program.to_text(); }

std::string named_mask_help() {
  std::string help;
  for (const mask::NamedMask& named : mask::named_masks()) {
    std::string arguments;
    for (const mask::NamedMaskArgument& argument : named.arguments) {
      arguments += (arguments.empty() ? "" : ", ") + argument.name;
      if (argument.default_value) arguments += "=" + std::to_string(*argument.default_value);
    }
    std::string tensors;
    for (const mask::TensorDeclaration& tensor : named.tensors) {
      tensors += (tensors.empty() ? "; tensors " : ", ") + tensor.name + ": " + to_string(tensor.dtype) + " of rank " +
                 std::to_string(tensor.rank);
    }
    help += named.name;
    if (!arguments.empty()) help.append("(").append(arguments).append(")");
    help.append(tensors).append("; ").append(named.meaning).append("\n");
  }
  return help;
}

}  // namespace flashspan
