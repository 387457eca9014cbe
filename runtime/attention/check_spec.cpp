// check_spec.cpp -- one rule a function, in the order in which choose_spec.cpp fills the fields.
#include "runtime/attention/check_spec.hpp"

#include <algorithm>
#include <sstream>
#include <string>

#include "codegen/kernel/arch_limits.hpp"
#include "codegen/kernel/resource_model.hpp"
#include "codegen/kernel/tile_config.hpp"
#include "codegen/mask/program.hpp"
#include "runtime/attention/validate.hpp"

namespace flashspan::attention {

namespace {

using kernel::KernelSpec;
using mask::LoweringKind;

Error bad_field(const std::string& name, const std::string& got, const std::string& takes) {
  return {ErrorCode::bad_argument, "kernel spec field '" + name + "'", got, takes, ""};
}

/// Error: bad_argument, for a text that is not the signature of a program of this type.
Result<mask::Program> read_program(const std::string& field, const std::string& signature, mask::ValueType type) {
  auto program = mask::Program::from_signature(signature);
  if (program && program->type() == type && program->to_signature() == signature) return program;
  Error error = bad_field(field, signature, std::string("the canonical text of a program of type ") + to_string(type));
  if (!program) error.detail = program.error().message();
  return error;
}

Result<void> check_mask(const KernelSpec& spec) {
  if (spec.lowering == LoweringKind::interpreted) {
    if (spec.mask.empty()) return {};
    return bad_field("mask", spec.mask, "nothing for the lowering interpreted");
  }
  const auto program = read_program("mask", spec.mask, mask::ValueType::boolean);
  if (!program) return program.error();
  return {};
}

Result<void> check_score(const KernelSpec& spec) {
  if (spec.score.empty()) {
    if (spec.score_gradients.empty()) return {};
    return bad_field("score_gradients", spec.score_gradients, "nothing without a score");
  }
  if (spec.lowering == LoweringKind::interpreted) {
    return bad_field("score", spec.score, "nothing for the lowering interpreted");
  }
  const auto program = read_program("score", spec.score, mask::ValueType::real);
  if (!program) return program.error();
  std::istringstream names(spec.score_gradients);
  for (std::string name; std::getline(names, name, ',');) {
    if (spec.direction == Direction::backward &&
        std::ranges::find(program->tensors(), name, &mask::TensorDeclaration::name) != program->tensors().end()) {
      continue;
    }
    return bad_field("score_gradients", name, "tensors of the score of a backward");
  }
  return {};
}

/// The family and what follows from it.
Result<void> check_family(const KernelSpec& spec) {
  const bool hopper = spec.family == kernel::KernelFamily::hopper;
  if (hopper && choose_family(spec).family != kernel::KernelFamily::hopper) {
    return bad_field("family", to_string(spec.family), choose_family(spec).reason);
  }
  if (spec.two_passes && !takes_two_passes(spec, {.deterministic = true, .expanded = false})) {
    return bad_field("two_passes", "true", "false");
  }
  if (spec.split_rows && !can_split_rows(spec)) return bad_field("split_rows", "true", "false");
  if (const LoweringKind served = served_lowering(spec, spec.lowering); served != spec.lowering) {
    return bad_field("lowering", to_string(spec.lowering), to_string(served));
  }
  return {};
}

}  // namespace

Result<void> check_spec(const KernelSpec& spec) {
  AttentionShape sizes;
  sizes.head_dim_qk = spec.head_dim_qk;
  sizes.head_dim_v = spec.head_dim_v;
  auto checked = check_dtype_and_head_dims(spec.dtype, sizes, spec.target.kind);
  if (checked && spec.target.kind == DeviceKind::cuda) checked = kernel::check_arch(spec.target.arch);
  for (const auto check : {check_mask, check_score, check_family, kernel::check_tile}) {
    if (checked) checked = check(spec);
  }
  return checked;
}

}  // namespace flashspan::attention
