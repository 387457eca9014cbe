// fully_masked_rows_test.cpp -- rows that see nothing, keys that nobody sees, and first tiles that are empty.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class FullyMaskedRows : public AttentionTest {};
FLASHSPAN_ON_EVERY_PLACE(FullyMaskedRows);

// F001, with D = 16 for every back end
TEST_P(FullyMaskedRows, ARowThatSeesNothingIsZeroAndLeavesTheKeysGradientsAlone) {
  Integers visible(60);
  for (Index q = 0; q < 5; ++q)
    for (Index k = 0; k <= q; ++k) visible[static_cast<std::size_t>(q * 10 + k)] = 1;
  Scenario scenario{.shape = shape_of(1, 2, 2, 6, 10, 16),
                    .mask = expect_value(Mask::parse("allowed[q, k] != 0", {{"allowed", view_of(visible, {6, 10})}})),
                    .visible = [](Index, Index, Index q, Index k) { return q < 5 && k <= q; },
                    .scale = 0.125F};
  Inputs inputs = random_inputs(scenario.shape);
  inputs.out_gradient = oracle::Tensor(1, 2, 6, 16, 1.0);
  const oracle::Answer answer = expect_passes(scenario, inputs);
  for (Index h = 0; h < 2; ++h) {
    EXPECT_EQ(answer.lse.at(0, h, 5), -infinity);
    for (Index d = 0; d < 16; ++d) {
      EXPECT_EQ(answer.out.at(0, h, 5, d), 0.0);
      EXPECT_EQ(answer.query_gradient.at(0, h, 5, d), 0.0);
    }
  }
  Scenario shorter = scenario;
  shorter.shape.q_len = 5;
  shorter.mask = expect_value(Mask::parse("allowed[q, k] != 0", {{"allowed", view_of(visible, {5, 10})}}));
  Inputs shorter_inputs = inputs;
  shorter_inputs.query = rows_of(inputs.query, 0, 5);
  shorter_inputs.out_gradient = rows_of(inputs.out_gradient, 0, 5);
  const oracle::Answer expected = run(shorter, shorter_inputs);
  EXPECT_TRUE(same_bits("key_gradient", answer.key_gradient, expected.key_gradient));
  EXPECT_TRUE(same_bits("value_gradient", answer.value_gradient, expected.value_gradient));
}

// F003: masks select and scores only add, so a row whose scores are all absorbed sees all keys alike.
TEST_P(FullyMaskedRows, ABiasOfTheLowestFloatIsALowScoreAndNotAMask) {
  constexpr Index length = 441;
  Reals bias(std::size_t{2} * length, 0.0F);
  std::fill_n(bias.begin(), 128, std::numeric_limits<float>::lowest());
  std::fill_n(bias.begin() + length, length, std::numeric_limits<float>::lowest());
  Scenario scenario{.shape = shape_of(1, 1, 1, length, length, 64),
                    .score = expect_value(
                        Score::parse("score + bias[where(q == 200, 1, 0), k]", {{"bias", view_of(bias, {2, length})}})),
                    .backward = false};
  const Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer answer = run(scenario, inputs);
  oracle::Problem masked = problem(scenario, inputs);
  masked.visible = [](Index, Index, Index q, Index k) { return q == 200 || k >= 128; };
  masked.score =
      oracle::ScoreFunction{[](double score, Index, Index, Index q, Index) { return q == 200 ? 0.0 : score; }, {}};
  const oracle::Answer reference = oracle::reference_attention(masked);
  EXPECT_TRUE(passes("out", answer.out, reference.out, oracle::plain_attention(masked, format()).out, format()));
}

// F004
TEST_P(FullyMaskedRows, MoreQueriesThanKeysUnderACausalMaskLeaveTheFirstRowsEmpty) {
  const Index query_heads = on_cuda() ? 32 : 8;
  Scenario scenario{
      .shape = shape_of(1, query_heads, query_heads / 4, 48, 15, 128), .mask = Mask::causal(), .backward = false};
  Inputs inputs = random_inputs(scenario.shape);
  inputs.value = oracle::Tensor(1, query_heads / 4, 15, 128, 1.0);
  const oracle::Answer answer = run(scenario, inputs);
  Index empty = 0;
  for (Index h = 0; h < query_heads; ++h) {
    for (Index q = 0; q < 48; ++q) {
      const bool sees = q >= 33;
      empty += answer.lse.at(0, h, q) == -infinity ? 1 : 0;
      EXPECT_EQ(answer.lse.at(0, h, q) == -infinity, !sees);
      for (Index d = 0; d < 128; ++d) EXPECT_NEAR(answer.out.at(0, h, q, d), sees ? 1.0 : 0.0, sees ? 1e-6 : 0.0);
    }
  }
  EXPECT_EQ(empty, 33 * query_heads);
}

TEST_P(FullyMaskedRows, AWindowThatLiesBeforeTheKeysLeavesTheFirstRowsEmpty) {  // F004, variant
  Scenario scenario{.shape = shape_of(1, 2, 1, 129, 33, 64),
                    .mask = expect_value(Mask::window(32, 64)),
                    .visible = [](Index, Index, Index q, Index k) { return q - 96 - 32 <= k && k <= q - 96 + 64; }};
  const oracle::Answer answer = expect_passes(scenario);
  for (Index q = 0; q < 129; ++q) EXPECT_EQ(answer.lse.at(0, 1, q) == -infinity, q < 32) << q;
}

// F006, with D = 16: scores are 16 / sqrt(16) = 4.
TEST_P(FullyMaskedRows, RowsWhoseFirstTilesAreEmptyGetTheConstantValueRow) {
  Scenario scenario{
      .shape = shape_of(1, 1, 1, 600, 600, 16), .mask = expect_value(Mask::window(9, 0)), .backward = false};
  Inputs inputs = random_inputs(scenario.shape);
  inputs.query = oracle::Tensor(1, 1, 600, 16, 1.0);
  inputs.key = inputs.value = inputs.query;
  const oracle::Answer answer = run(scenario, inputs);
  EXPECT_TRUE(near("out", answer.out, oracle::Tensor(1, 1, 600, 16, 1.0), 1e-6));
  for (Index q = 0; q < 600; ++q) {
    const double visible = std::min<double>(static_cast<double>(q + 1), 10);
    EXPECT_NEAR(answer.lse.at(0, 0, q), 4 + std::log(visible), 1e-5) << q;
  }
}

// F007: logits of about -200, far below the identity of a maximum that starts at zero.
TEST_P(FullyMaskedRows, VeryLowScoresBehindEmptyTilesKeepTheirWeight) {
  Scenario scenario{.shape = shape_of(1, 7, 1, 88, 448, 128), .mask = Mask::causal(), .backward = false};
  Inputs inputs = random_inputs(scenario.shape);
  const double entry = oracle::round_to(format(), static_cast<float>(std::sqrt(200 * std::sqrt(128.0) / 128)));
  inputs.query = oracle::Tensor(1, 7, 88, 128, entry);
  inputs.key = oracle::Tensor(1, 1, 448, 128, -entry);
  inputs.value = oracle::Tensor(1, 1, 448, 128, 1.0);
  const oracle::Answer answer = run(scenario, inputs);
  EXPECT_TRUE(near("out", answer.out, oracle::Tensor(1, 7, 88, 128, 1.0), 1e-6));
  const double logit = -entry * entry * 128 / std::sqrt(128.0);
  for (Index q = 0; q < 88; ++q) {
    ASSERT_NEAR(answer.lse.at(0, 3, q), logit + std::log(static_cast<double>(q + 361)), 1e-3);
  }
}

TEST_P(FullyMaskedRows, AMaskThatShowsNothingGivesZerosEverywhere) {
  Scenario scenario{.shape = shape_of(2, 2, 1, 70, 130, 64), .mask = ~Mask::full(), .lse_gradient = true};
  const oracle::Answer answer = run(scenario, random_inputs(scenario.shape));
  EXPECT_TRUE(all_equal("out", answer.out, 0.0));
  EXPECT_TRUE(all_equal("lse", answer.lse, -infinity));
  EXPECT_TRUE(all_equal("query_gradient", answer.query_gradient, 0.0));
  EXPECT_TRUE(all_equal("key_gradient", answer.key_gradient, 0.0));
  EXPECT_TRUE(all_equal("value_gradient", answer.value_gradient, 0.0));
}

TEST_P(FullyMaskedRows, KeysThatNobodySeesGetZeroGradients) {
  Scenario scenario{.shape = shape_of(1, 2, 1, 100, 300, 64),
                    .mask = expect_value(Mask::parse("(k >= 70) & (k < 200)")),
                    .visible = [](Index, Index, Index, Index k) { return k >= 70 && k < 200; }};
  const oracle::Answer answer = expect_passes(scenario);
  for (Index k = 0; k < 300; ++k) {
    if (k >= 70 && k < 200) continue;
    EXPECT_EQ(answer.key_gradient.at(0, 0, k, 63), 0.0);
    EXPECT_EQ(answer.value_gradient.at(0, 0, k, 63), 0.0);
  }
}

}  // namespace
}  // namespace flashspan::tests
