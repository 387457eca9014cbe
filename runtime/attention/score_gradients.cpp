#include "runtime/attention/score_gradients.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "codegen/kernel/score_lookups.hpp"
#include "runtime/attention/tensor_rule.hpp"

namespace flashspan::attention {

namespace {

constexpr const char* list_argument = "score_gradients";

std::string argument_of(const ScoreGradient& result) { return std::string(list_argument) + " '" + result.name + "'"; }

/// Index of the score's tensor of that name.
std::optional<std::size_t> place_of(const BoundScore& score, const std::string& name) {
  const auto& tensors = score.program.tensors();
  const auto found = std::ranges::find(tensors, name, &mask::TensorDeclaration::name);
  if (found == tensors.end()) return std::nullopt;
  return static_cast<std::size_t>(found - tensors.begin());
}

/// "tensors of reals that the score looks up: bias, slope".
std::string takes_names(const BoundScore& score) {
  std::string names;
  for (const mask::TensorDeclaration& tensor : score.program.tensors()) {
    if (tensor.dtype != DType::i32) names += (names.empty() ? "" : ", ") + tensor.name;
  }
  return "tensors of reals that the score looks up: " + (names.empty() ? "none" : names);
}

/// Axes in the order of their strides do not reach into one another. (Arrangements that interleave are refused too.)
bool elements_are_apart(const TensorView& view) {
  if (view.element_count() == 0) return true;
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride, extent
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
    if (view.shape[axis] > 1) axes.emplace_back(view.strides[axis], view.shape[axis]);
  }
  std::ranges::sort(axes);
  std::int64_t reach = 0;  // of the axes so far
  for (const auto& [stride, extent] : axes) {
    if (stride <= reach) return false;
    reach += stride * (extent - 1);
  }
  return true;
}

Result<void> check_result(const ScoreGradient& result, const TensorView& looked_up, Device device) {
  const std::string argument = argument_of(result);
  const TensorView& view = result.view;
  TensorView expected = looked_up;
  expected.dtype = DType::f32;
  const std::string takes = "a tensor " + to_string(expected) + ", the shape of what it is the gradient of";
  if (auto given = check_given(argument, view, takes); !given) return given;
  if (view.rank != expected.rank || view.dtype != DType::f32 || view.shape != expected.shape) {
    return bad_argument(argument, to_string(view), takes);
  }
  if (view.device != device) {
    return bad_argument(argument, "a tensor on " + to_string(view.device),
                        "tensors on " + to_string(device) + ", the device of this Attention");
  }
  if (auto memory = check_memory(argument, view); !memory) return memory;
  if (elements_are_apart(view)) return {};
  return bad_argument(argument, "strides that bring elements together",
                      "a result whose elements are all apart, since it is written to");
}

std::vector<std::string> names_of(const AttentionCall& call) {
  std::vector<std::string> names;
  names.reserve(call.score_gradients.size());
  for (const ScoreGradient& result : call.score_gradients) names.push_back(result.name);
  return names;
}

Result<void> check_name(const BoundScore* score, const std::string& name) {
  if (score == nullptr) return bad_argument(list_argument, "'" + name + "', and no score", "none without a score");
  const auto place = place_of(*score, name);
  if (!place) return bad_argument(list_argument, "'" + name + "'", takes_names(*score));
  if (score->program.tensors()[*place].dtype != DType::i32) return {};
  return bad_argument(list_argument, "'" + name + "', a tensor of integers", takes_names(*score));
}

}  // namespace

Result<std::string> score_gradient_names(const BoundScore* score, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (auto known = check_name(score, name); !known) return known.error();
  }
  std::vector<std::string> ordered = names;
  std::ranges::sort(ordered, {}, [&](const std::string& name) { return place_of(*score, name); });
  if (const auto twice = std::ranges::adjacent_find(ordered); twice != ordered.end()) {
    return bad_argument(list_argument, "'" + *twice + "' twice", "every tensor once");
  }
  return kernel::join_names(ordered);
}

Result<void> check_score_gradients(const AttentionCall& call, Device device) {
  if (const auto names = score_gradient_names(call.score, names_of(call)); !names) return names.error();
  for (const ScoreGradient& result : call.score_gradients) {
    const TensorView& looked_up = call.score->bindings.tensors[*place_of(*call.score, result.name)];
    if (auto fits = check_result(result, looked_up, device); !fits) return fits;
  }
  return {};
}

std::string score_gradient_names(const AttentionCall& call) {
  const auto names = score_gradient_names(call.score, names_of(call));
  return names ? *names : "";
}

std::vector<TensorView> score_gradient_results(const AttentionCall& call) {
  std::vector<ScoreGradient> ordered = call.score_gradients;
  std::ranges::sort(ordered, {}, [&](const ScoreGradient& result) { return place_of(*call.score, result.name); });
  std::vector<TensorView> views;
  views.reserve(ordered.size());
  for (const ScoreGradient& result : ordered) views.push_back(result.view);
  return views;
}

}  // namespace flashspan::attention
