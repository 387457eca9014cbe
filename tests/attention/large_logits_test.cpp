// large_logits_test.cpp -- softmax is invariant to shifts, however large.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/attention_fixture.hpp"

namespace flashspan::tests {
namespace {

class LargeLogits : public AttentionTest {
 protected:
  static constexpr Index keys = 100;
  static constexpr Index head_dim = 128;
};
FLASHSPAN_ON_EVERY_PLACE(LargeLogits);

// F042: q.k = 128 * 40 * 48 = +-245760 exactly in every format.
TEST_P(LargeLogits, EqualHugeLogitsGiveTheMeanOfTheValues) {
  for (double sign : {-1.0, 1.0}) {
    SCOPED_TRACE(sign);
    Scenario scenario{.shape = shape_of(1, 1, 1, 3, keys, head_dim), .backward = true};
    Inputs inputs = random_inputs(scenario.shape);
    inputs.query = oracle::Tensor(1, 1, 3, head_dim, 40.0);
    inputs.key = oracle::Tensor(1, 1, keys, head_dim, sign * 48.0);
    const oracle::Answer answer = expect_passes(scenario, inputs);
    const double logit = sign * 245760 / std::sqrt(static_cast<double>(head_dim));
    EXPECT_TRUE(near("lse", answer.lse, oracle::Tensor(1, 1, 3, 1, logit + std::log(100.0)), 0.004));
  }
}

// F042: one key 8 above the rest (raw 8 * sqrt(128) = 90.5).
TEST_P(LargeLogits, OneKeyALittleAboveTheRestTakesItsShare) {
  Scenario scenario{.shape = shape_of(1, 1, 1, 3, keys, head_dim), .backward = false};
  Inputs inputs = random_inputs(scenario.shape);
  inputs.query = oracle::Tensor(1, 1, 3, head_dim, 40.0);
  inputs.key = oracle::Tensor(1, 1, keys, head_dim, -48.0);
  inputs.key.at(0, 0, 50, 0) = -46.0;
  expect_passes(scenario, inputs);
}

// F044
TEST_P(LargeLogits, TwoKeysTiedAtALargeMaximumShareTheWeight) {
  for (float scale : {0.3F, 1e-3F}) {
    for (double size : {40.0, -40.0}) {
      SCOPED_TRACE(size);
      Scenario scenario{.shape = shape_of(1, 1, 1, 5, keys, head_dim), .scale = scale, .backward = false};
      Inputs inputs = random_inputs(scenario.shape);
      inputs.query = oracle::Tensor(1, 1, 5, head_dim, size);
      inputs.key = oracle::Tensor(1, 1, keys, head_dim, -39.0);
      for (Index tied : {3, 97}) std::fill_n(inputs.key.row(0, 0, tied), head_dim, size > 0 ? 39.0 : -42.0);
      inputs.value = oracle::Tensor(1, 1, keys, head_dim, 1.0);
      const oracle::Answer answer = run(scenario, inputs);
      const oracle::Answer reference = oracle::reference_attention(problem(scenario, inputs));
      EXPECT_TRUE(near("out", answer.out, oracle::Tensor(1, 1, 5, head_dim, 1.0), 1e-5));
      // Equal products may all round the same way: head_dim binary32 roundings of the largest logit.
      const double largest = static_cast<double>(scale) * 128 * (size > 0 ? 40.0 * 39.0 : 40.0 * 42.0);
      const double rounding = largest * head_dim * oracle::unit_roundoff(oracle::Format::f32);
      EXPECT_TRUE(near("lse", answer.lse, reference.lse, rounding));
      for (Index q = 0; q < 5; ++q) EXPECT_GE(answer.lse.at(0, 0, q), largest - rounding);
    }
  }
}

}  // namespace
}  // namespace flashspan::tests
