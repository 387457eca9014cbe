// score_gradients.hpp -- the results that a call asks for of the tensors its score looks up: whether they can be given,
// and in the order of the score's declarations.
#pragma once

#include <string>
#include <vector>

#include "flashspan/core/error.hpp"
#include "runtime/attention/attention_call.hpp"

namespace flashspan::attention {

/// KernelSpec::score_gradients of these names, in any order; `score` may be null.
/// Error: bad_argument, unless each is the name of a tensor of reals of the score, and given once.
[[nodiscard]] Result<std::string> score_gradient_names(const BoundScore* score, const std::vector<std::string>& names);

/// The names are as above, and every result is f32 of its tensor's shape, on `device`, no two elements in one place.
/// Error: bad_argument.
[[nodiscard]] Result<void> check_score_gradients(const AttentionCall& call, Device device);

/// Of a checked call, in the order of the score's declarations: KernelSpec::score_gradients, and the results.
[[nodiscard]] std::string score_gradient_names(const AttentionCall& call);
[[nodiscard]] std::vector<TensorView> score_gradient_results(const AttentionCall& call);

}  // namespace flashspan::attention
