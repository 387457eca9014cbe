// score.cpp -- Score from text, and what a score says about itself.
#include <memory>
#include <string>
#include <utility>

#include "flashspan/mask.hpp"
#include "runtime/api/bind_program.hpp"
#include "runtime/attention/validate_program.hpp"

namespace flashspan {

Result<Score> Score::parse(const std::string& text, const std::vector<NamedTensor>& tensors,
                           const std::vector<NamedScalar>& scalars) {
  auto bound = api::bind_program(text, mask::ProgramKind::score, {tensors, scalars});
  if (!bound) return bound.error();
  ScoreState state;
  static_cast<attention::BoundProgram&>(state) = std::move(*bound);
  state.axis_rules = attention::axis_rules_of(state.program, /*exact=*/false);
  return Score(std::make_shared<const ScoreState>(std::move(state)));
}

std::optional<Device> Score::device() const {
  if (state_->bindings.tensors.empty()) return std::nullopt;
  return state_->bindings.tensors.front().device;
}

std::string Score::text() const { return state_->program.to_text(); }

}  // namespace flashspan
