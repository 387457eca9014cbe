// score_test.cpp -- score programs in both directions: softcap, ALiBi, relative bias, scores that are replaced.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class Scores : public AttentionTest {
 protected:
  static double one(double, Index, Index, Index, Index) { return 1.0; }
  void expect_score(const Score& score, const oracle::ScoreFunction& function, double magnitude = 1) {
    const Scenario scenario{.shape = shape_of(2, 4, 2, 100, 150, 64),
                            .mask = Mask::causal(),
                            .visible = [](Index, Index, Index q, Index k) { return k <= q + 50; },
                            .score = score,
                            .score_function = function,
                            .lse_gradient = true};
    expect_passes(scenario, random_inputs(scenario.shape, 1, magnitude));
  }
};
FLASHSPAN_ON_EVERY_PLACE(Scores);

TEST_P(Scores, SoftcapIsBentInBothDirections) {
  expect_score(expect_value(Score::parse("cap * tanh(score / cap)", {}, {{"cap", 3.0}})),
               {[](double score, Index, Index, Index, Index) { return 3 * std::tanh(score / 3); },
                [](double score, Index, Index, Index, Index) { return 1 - std::pow(std::tanh(score / 3), 2); }},
               2);
}

TEST_P(Scores, AlibiTakesItsSlopesFromATensor) {
  Reals slopes = {0.5F, 0.25F, 0.125F, 0.0625F};
  expect_score(
      expect_value(Score::parse("score - slope[h] * abs(q + kv_len - q_len - k)", {{"slope", view_of(slopes, {4})}})),
      {[slopes](double score, Index, Index h, Index q, Index k) {
         return score -
                static_cast<double>(slopes[static_cast<std::size_t>(h)]) * static_cast<double>(std::abs(q + 50 - k));
       },
       one});
}

TEST_P(Scores, RelativeBiasIsLookedUpByDistance) {
  Reals bias = random_reals(std::size_t{4} * 250, 1, 8);
  expect_score(expect_value(Score::parse("score + bias[h, q - k + 149]", {{"bias", view_of(bias, {4, 250})}})),
               {[bias](double score, Index, Index h, Index q, Index k) {
                  return score + static_cast<double>(bias[static_cast<std::size_t>(h * 250 + q - k + 149)]);
                },
                one});
}

TEST_P(Scores, AScoreChosenByPositionHasTheDerivativeOfItsBranch) {
  expect_score(expect_value(Score::parse("where((q + k) % 2 == 0, 2 * score, max(score, 0.25))")),
               {[](double score, Index, Index, Index q, Index k) {
                  return (q + k) % 2 == 0 ? 2 * score : std::max(score, 0.25);
                },
                [](double score, Index, Index, Index q, Index k) {
                  return (q + k) % 2 == 0 ? 2.0 : (score >= 0.25 ? 1.0 : 0.0);
                }});
}

TEST_P(Scores, ScoresThatAreNoNumberPastTheLastQueryHaveNoPartInGradients) {
  Reals lengths(100);
  for (std::size_t q = 0; q < lengths.size(); ++q) lengths[q] = 2.0F + static_cast<float>(q);
  const Score looked_up = expect_value(Score::parse("score * log(n[q])", {{"n", view_of(lengths, {100})}}));
  const Score computed = expect_value(Score::parse("score * log(q_len - q + 1)"));
  for (const bool looks_up : {true, false}) {
    for (const Index head_dim : {64, 128, 256}) {
      SCOPED_TRACE(std::to_string(head_dim) + (looks_up ? " looked up" : " computed"));
      const auto factor = [looks_up](double, Index, Index, Index q, Index) {
        return std::log(static_cast<double>(looks_up ? 2 + q : 101 - q));
      };
      const auto score = [factor](double score, Index b, Index h, Index q, Index k) {
        return score * factor(score, b, h, q, k);
      };
      expect_passes({.shape = shape_of(1, 2, 1, 100, 150, head_dim),
                     .score = looks_up ? looked_up : computed,
                     .score_function = oracle::ScoreFunction{score, factor}});
    }
  }
}

// F033
TEST_P(Scores, ScoresReplacedByABiasGiveTheQueryAndKeyExactlyNoGradient) {
  Reals bias = random_reals(std::size_t{2} * 129, 1, 8);
  const Score replaced = expect_value(Score::parse("bias[h, q - k + 64]", {{"bias", view_of(bias, {2, 129})}}));
  const Score erased = expect_value(Score::parse("score * 0"));
  const oracle::ScoreFunction replacing{
      [bias](double, Index, Index h, Index q, Index k) {
        return static_cast<double>(bias[static_cast<std::size_t>(h * 129 + q - k + 64)]);
      },
      [](double, Index, Index, Index, Index) { return 0.0; }};
  const oracle::ScoreFunction erasing{[](double, Index, Index, Index, Index) { return 0.0; },
                                      [](double, Index, Index, Index, Index) { return 0.0; }};
  for (const bool replace : {true, false}) {
    const oracle::Answer answer = expect_passes({.shape = shape_of(1, 2, 2, 65, 65, 32),
                                                 .score = replace ? replaced : erased,
                                                 .score_function = replace ? replacing : erasing});
    EXPECT_TRUE(all_equal("query_gradient", answer.query_gradient, 0.0));
    EXPECT_TRUE(all_equal("key_gradient", answer.key_gradient, 0.0));
  }
}

TEST_P(Scores, AnyScaleIsTakenNegativeAndZeroToo) {
  for (float scale : {0.3F, 1e-3F, 0.0F, -0.2F}) {
    SCOPED_TRACE(scale);
    expect_passes({.shape = shape_of(1, 2, 2, 100, 100, 64),
                   .mask = Mask::causal(),
                   .visible = [](Index, Index, Index q, Index k) { return k <= q; },
                   .scale = scale});
  }
}

}  // namespace
}  // namespace flashspan::tests
