// score_gradient_arguments.cuh -- the by-value argument of the kernels in backward_score.cuh beside those that every
// kernel takes. Plain data, as in parameters.cuh; apart from it, so that other kernels do not have it in their text.
#pragma once

namespace flashspan_device {

// As many as a program has tensors, and of their rank (parameters.cuh).
constexpr int max_score_gradients = 12;
constexpr int max_score_gradient_rank = 5;

// The gradient of one tensor that the score looks up.
struct ScoreGradient {
  float* result;
  long long stride[max_score_gradient_rank];  // of the result
  int extent[max_score_gradient_rank];        // of the tensor, and the result
  int rank;
  long long elements;
  // Deterministic mode: the sums of all elements, row by row, in fixed point and two's complement; else null.
  unsigned long long* sums;
};

// What a run of attention_backward_score_sum does with an addend. In the default mode it adds it to the result. In the
// deterministic mode a first run notes the largest magnitude of each element's addends in its result, and a second adds
// them up in units that follow from it: a sum of integers does not depend on its order.
enum class ScoreGradientRun : int { add, measure, add_in_units };

struct ScoreGradientArguments {
  ScoreGradient of[max_score_gradients];
  int count;
  int sum_bits;  // of an element's largest addend, in units: so few that no sum overflows
  ScoreGradientRun run;
};

constexpr int score_element_threads = 256;  // of a block of the kernels that go over elements

}  // namespace flashspan_device
