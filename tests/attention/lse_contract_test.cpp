// lse_contract_test.cpp -- LSE is a natural logarithm, always filled, merges, and carries a gradient.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class LseContract : public AttentionTest {};
FLASHSPAN_ON_EVERY_PLACE(LseContract);

// F068
TEST_P(LseContract, ZeroScoresGiveTheNaturalLogarithmOfTheCount) {
  Scenario scenario{.shape = shape_of(1, 2, 2, 5, 128, 64), .backward = false};
  Inputs inputs = random_inputs(scenario.shape);
  inputs.query = oracle::Tensor(1, 2, 5, 64);
  const oracle::Answer answer = run(scenario, inputs);
  EXPECT_TRUE(near("lse", answer.lse, oracle::Tensor(1, 2, 5, 1, std::log(128.0)), 1e-6));
}

// F068
TEST_P(LseContract, OutIsTheSameWhetherLseIsAskedForOrNot) {
  Scenario scenario{.shape = shape_of(1, 2, 1, 100, 130, 64), .mask = Mask::causal(), .backward = false};
  const Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer with = run(scenario, inputs);
  scenario.with_lse = false;
  EXPECT_TRUE(same_bits("out", run(scenario, inputs).out, with.out));
}

// F068
TEST_P(LseContract, TwoHalvesMergeIntoTheWhole) {
  constexpr Index keys = 200;
  Scenario whole{.shape = shape_of(1, 2, 2, 60, keys, 64), .backward = false};
  const Inputs inputs = random_inputs(whole.shape);
  const oracle::Answer all = run(whole, inputs);
  Scenario first = whole;
  Scenario second = whole;
  first.mask = expect_value(Mask::parse("k < cut", {}, {{"cut", std::int64_t{77}}}));
  second.mask = ~*first.mask;
  const oracle::Answer low = run(first, inputs);
  const oracle::Answer high = run(second, inputs);
  for (Index h = 0; h < 2; ++h) {
    for (Index q = 0; q < 60; ++q) {
      const double low_weight = std::exp(low.lse.at(0, h, q) - all.lse.at(0, h, q));
      const double high_weight = std::exp(high.lse.at(0, h, q) - all.lse.at(0, h, q));
      ASSERT_NEAR(low_weight + high_weight, 1.0, 1e-5);
      for (Index d = 0; d < 64; ++d) {
        const double merged = low_weight * low.out.at(0, h, q, d) + high_weight * high.out.at(0, h, q, d);
        ASSERT_NEAR(merged, all.out.at(0, h, q, d), 4 * oracle::unit_roundoff(format()) + 1e-5);
      }
    }
  }
}

// F053: loss = sum(out exp(lse)), so d out = exp(lse) and d lse = exp(lse) sum(out), on an awkward length.
TEST_P(LseContract, TheGradientThroughLseIsExact) {
  constexpr Index length = 257;
  Scenario scenario{.shape = shape_of(1, 2, 1, length, length, 64),
                    .mask = Mask::causal(),
                    .visible = [](Index, Index, Index q, Index k) { return k <= q; },
                    .lse_gradient = true};
  Inputs inputs = random_inputs(scenario.shape, 1, 0.5);
  Scenario forward = scenario;
  forward.backward = false;
  const oracle::Answer answer = oracle::reference_attention(problem(forward, inputs));
  for (Index h = 0; h < 2; ++h) {
    for (Index q = 0; q < length; ++q) {
      const double weight = std::exp(answer.lse.at(0, h, q));
      double sum = 0;
      for (Index d = 0; d < 64; ++d) {
        inputs.out_gradient.at(0, h, q, d) = oracle::round_to(format(), static_cast<float>(weight));
        sum += answer.out.at(0, h, q, d);
      }
      inputs.lse_gradient.at(0, h, q) = static_cast<float>(weight * sum);
    }
  }
  expect_passes(scenario, inputs);
}

// F053
TEST_P(LseContract, ALayoutMadeForAnotherLengthIsRefused) {
  const AttentionShape built_for = shape_of(1, 1, 1, 512, 512, 64);
  Integers starts(512, 512);
  const Mask mask = expect_value(Mask::flashmask(built_for, view_of(starts, {1, 1, 512, 1}), true));
  for (Index length : {257, 511}) {
    const Scenario scenario{.shape = shape_of(1, 1, 1, length, length, 64), .mask = mask};
    const Error error = refusal(scenario, random_inputs(scenario.shape));
    EXPECT_EQ(error.code, ErrorCode::bad_argument);
    EXPECT_NE(error.message().find(std::to_string(length)), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("512"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace flashspan::tests
