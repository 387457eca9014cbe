// oracle_test.cpp -- the oracle against itself: gradients by finite differences, and known closed forms.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "attention.hpp"
#include "formats.hpp"
#include "pass_rule.hpp"
#include "random_numbers.hpp"

namespace oracle {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// B = 2, Hq = 4, Hkv = 2, Sq = 5, Sk = 7, D = 3, Dv = 2; query 1 sees nothing, key 6 is seen by nobody.
Problem small_problem() {
  Problem problem;
  problem.query = random_tensor(2, 4, 5, 3, Format::f32, 1);
  problem.key = random_tensor(2, 2, 7, 3, Format::f32, 2);
  problem.value = random_tensor(2, 2, 7, 2, Format::f32, 3);
  problem.scale = 0.7;
  problem.visible = [](Index b, Index h, Index q, Index k) { return q != 1 && k != 6 && (b + h + q + 2 * k) % 3 != 0; };
  problem.out_gradient = random_tensor(2, 4, 5, 2, Format::f32, 4);
  problem.lse_gradient = random_tensor(2, 4, 5, 1, Format::f32, 5);
  return problem;
}

ScoreFunction softcap_with_bias() {
  return {[](double score, Index, Index h, Index q, Index k) {
            return 2 * std::tanh(score / 2) + 0.1 * static_cast<double>(h + q - k);
          },
          [](double score, Index, Index, Index, Index) { return 1 - std::pow(std::tanh(score / 2), 2); }};
}

/// sum(out * out_gradient) + sum(lse * lse_gradient) over rows that see something.
double loss(const Problem& problem) {
  Problem forward_only = problem;
  forward_only.out_gradient.reset();
  const Answer answer = reference_attention(forward_only);
  double sum = 0;
  for (std::size_t i = 0; i < answer.out.values.size(); ++i) {
    sum += answer.out.values[i] * problem.out_gradient->values[i];
  }
  for (std::size_t i = 0; i < answer.lse.values.size(); ++i) {
    if (std::isfinite(answer.lse.values[i])) sum += answer.lse.values[i] * problem.lse_gradient->values[i];
  }
  return sum;
}

Tensor& values_of(Tensor& tensor) { return tensor; }
Tensor& values_of(std::optional<Tensor>& tensor) { return *tensor; }

template <typename Input>
void expect_finite_differences(Problem problem, Input Problem::* input, const Tensor& gradient) {
  constexpr double step = 1e-5;
  for (std::size_t i = 0; i < gradient.values.size(); ++i) {
    double& value = values_of(problem.*input).values[i];
    const double saved = value;
    value = saved + step;
    const double above = loss(problem);
    value = saved - step;
    const double below = loss(problem);
    value = saved;
    ASSERT_NEAR(gradient.values[i], (above - below) / (2 * step), 1e-8) << "element " << i;
  }
}

TEST(Oracle, GradientsAreFiniteDifferences) {
  const Problem problem = small_problem();
  const Answer answer = reference_attention(problem);
  expect_finite_differences(problem, &Problem::query, answer.query_gradient);
  expect_finite_differences(problem, &Problem::key, answer.key_gradient);
  expect_finite_differences(problem, &Problem::value, answer.value_gradient);
}

TEST(Oracle, GradientsThroughAScoreFunctionAreFiniteDifferences) {
  Problem problem = small_problem();
  problem.score = softcap_with_bias();
  const Answer answer = reference_attention(problem);
  expect_finite_differences(problem, &Problem::query, answer.query_gradient);
  expect_finite_differences(problem, &Problem::key, answer.key_gradient);
  expect_finite_differences(problem, &Problem::value, answer.value_gradient);
}

TEST(Oracle, GradientsOfWhatAScoreReadsAreFiniteDifferences) {
  Problem problem = small_problem();
  std::vector<double> bias{0.3, -0.2, 0.9}, factor{1.5, -0.5, 0.25, 2};
  const auto at = [](Index q, Index k) { return (q + 2 * k) % 3; };
  problem.score = ScoreFunction{
      [&](double score, Index, Index h, Index q, Index k) {
        return std::tanh(factor[static_cast<std::size_t>(h)] * score + bias[static_cast<std::size_t>(at(q, k))]);
      },
      [](double, Index, Index, Index, Index) { return 0.0; },
      [&](double score, Index, Index h, Index q, Index k, const TakeSlope& take) {
        const double inner = factor[static_cast<std::size_t>(h)] * score + bias[static_cast<std::size_t>(at(q, k))];
        const double slope = 1 - std::pow(std::tanh(inner), 2);
        take(0, at(q, k), slope);
        take(1, h, slope * score);
      }};
  problem.score_tensors = {3, 4};
  const Answer answer = reference_attention(problem);
  constexpr double step = 1e-5;
  const auto expect_gradient = [&](std::vector<double>& values, const Tensor& gradient) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = values[i];
      values[i] = value + step;
      const double above = loss(problem);
      values[i] = value - step;
      const double below = loss(problem);
      values[i] = value;
      EXPECT_NEAR(gradient.values[i], (above - below) / (2 * step), 1e-6) << i;
    }
  };
  expect_gradient(bias, answer.score_gradients[0]);
  expect_gradient(factor, answer.score_gradients[1]);
}

TEST(Oracle, GradientsBesideASinkAreFiniteDifferences) {
  Problem problem = small_problem();
  problem.sink = random_tensor(1, 4, 1, 1, Format::f32, 6);
  const Answer answer = reference_attention(problem);
  expect_finite_differences(problem, &Problem::query, answer.query_gradient);
  expect_finite_differences(problem, &Problem::key, answer.key_gradient);
  expect_finite_differences(problem, &Problem::value, answer.value_gradient);
  expect_finite_differences(problem, &Problem::sink, answer.sink_gradient);
}

TEST(Oracle, ASinkIsOneMoreKeyOfValueZero) {
  Problem problem = small_problem();
  problem.lse_gradient.reset();
  problem.sink = Tensor(1, 4, 1, 1, 0.25);
  const Answer answer = reference_attention(problem);
  // Key 7: all see it, its score is the sink's whatever the query, its value is 0.
  Problem longer = problem;
  longer.sink.reset();
  longer.key = Tensor(2, 2, 8, 3);
  longer.value = Tensor(2, 2, 8, 2);
  for_each_row(problem.key, [&](Index b, Index h, Index k) {
    std::copy_n(problem.key.row(b, h, k), 3, longer.key.row(b, h, k));
    std::copy_n(problem.value.row(b, h, k), 2, longer.value.row(b, h, k));
  });
  longer.visible = [&](Index b, Index h, Index q, Index k) { return k == 7 || problem.visible(b, h, q, k); };
  longer.score = ScoreFunction{[](double score, Index, Index, Index, Index k) { return k == 7 ? 0.25 : score; },
                               [](double, Index, Index, Index, Index k) { return k == 7 ? 0.0 : 1.0; }};
  const Answer expected = reference_attention(longer);
  EXPECT_TRUE(near("out", answer.out, expected.out, 1e-14));
  EXPECT_TRUE(near("lse", answer.lse, expected.lse, 1e-14));
  EXPECT_TRUE(near("query_gradient", answer.query_gradient, expected.query_gradient, 1e-14));
  EXPECT_TRUE(near("key_gradient", answer.key_gradient, rows_of(expected.key_gradient, 0, 7), 1e-14));
}

TEST(Oracle, AnInfiniteSinkTakesAllWeightOrNone) {
  Problem problem = small_problem();
  const Answer without = reference_attention(problem);
  problem.sink = Tensor(1, 4, 1, 1, -infinity);
  const Answer none = reference_attention(problem);
  EXPECT_TRUE(near("out", none.out, without.out, 0));
  EXPECT_TRUE(near("lse", none.lse, without.lse, 0));
  EXPECT_TRUE(all_equal("sink_gradient", none.sink_gradient, 0));
  problem.sink = Tensor(1, 4, 1, 1, infinity);
  const Answer all = reference_attention(problem);
  EXPECT_TRUE(all_equal("out", all.out, 0));
  EXPECT_TRUE(all_equal("lse", all.lse, infinity));
  EXPECT_TRUE(all_equal("query_gradient", all.query_gradient, 0));
}

TEST(Oracle, RowsThatSeeNothingAreZeroWithMinusInfinity) {
  const Answer answer = reference_attention(small_problem());
  for (Index b = 0; b < 2; ++b) {
    for (Index h = 0; h < 4; ++h) {
      EXPECT_EQ(answer.lse.at(b, h, 1), -infinity);
      for (Index d = 0; d < 2; ++d) EXPECT_EQ(answer.out.at(b, h, 1, d), 0.0);
      for (Index d = 0; d < 3; ++d) EXPECT_EQ(answer.query_gradient.at(b, h, 1, d), 0.0);
      for (Index d = 0; d < 3; ++d) EXPECT_EQ(answer.key_gradient.at(b, h / 2, 6, d), 0.0);
    }
  }
}

TEST(Oracle, WindowOfTenOverOnesHasAKnownLogSum) {  // F006
  Problem problem;
  problem.query = Tensor(1, 1, 600, 2, 1.0);
  problem.key = Tensor(1, 1, 600, 2, 1.0);
  problem.value = Tensor(1, 1, 600, 2, 1.0);
  problem.scale = 1 / std::sqrt(2.0);
  problem.visible = [](Index, Index, Index q, Index k) { return k <= q && q - k < 10; };
  const Answer answer = reference_attention(problem);
  for (Index q = 0; q < 600; ++q) {
    EXPECT_NEAR(answer.lse.at(0, 0, q), std::sqrt(2.0) + std::log(std::min<double>(static_cast<double>(q) + 1, 10)),
                1e-12);
    EXPECT_NEAR(answer.out.at(0, 0, q, 1), 1.0, 1e-12);
  }
}

TEST(Oracle, OneVisibleKeyGivesItsValueAndNoScoreGradient) {  // F015
  Problem problem;
  problem.query = random_tensor(1, 1, 4, 8, Format::f16, 1, 3);
  problem.key = random_tensor(1, 1, 1, 8, Format::f16, 2, 3);
  problem.value = random_tensor(1, 1, 1, 8, Format::f16, 3, 3);
  problem.visible = [](Index, Index, Index q, Index) { return q == 3; };
  problem.out_gradient = Tensor(1, 1, 4, 8, 1.0);
  const Answer answer = reference_attention(problem);
  for (Index d = 0; d < 8; ++d) {
    EXPECT_EQ(answer.out.at(0, 0, 3, d), problem.value.at(0, 0, 0, d));
    EXPECT_EQ(answer.value_gradient.at(0, 0, 0, d), 1.0);
  }
  EXPECT_TRUE(all_equal("query_gradient", answer.query_gradient, 0.0));
  EXPECT_TRUE(all_equal("key_gradient", answer.key_gradient, 0.0));
}

TEST(Oracle, EqualHugeLogitsGiveTheMean) {  // F042
  Problem problem;
  problem.query = Tensor(1, 1, 1, 1, -2.45e5);
  problem.key = Tensor(1, 1, 100, 1, 1.0);
  problem.value = random_tensor(1, 1, 100, 1, Format::f32, 9);
  const Answer answer = reference_attention(problem);
  double mean = 0;
  for (double value : problem.value.values) mean += value / 100;
  EXPECT_NEAR(answer.out.at(0, 0, 0), mean, 1e-12);
  EXPECT_NEAR(answer.lse.at(0, 0, 0), -2.45e5 + std::log(100.0), 1e-9);
}

TEST(Oracle, AVisibleNaNMakesExactlyTheRowsThatSeeItNaN) {  // F041
  Problem problem = small_problem();
  problem.key.at(0, 0, 3, 1) = std::nan("");
  const Answer answer = reference_attention(problem);
  for (Index h = 0; h < 4; ++h) {
    for (Index q = 0; q < 5; ++q) {
      const bool sees = h < 2 && problem.visible(0, h, q, 3);
      EXPECT_EQ(std::isnan(answer.lse.at(0, h, q)), sees);
      EXPECT_EQ(std::isnan(answer.out.at(0, h, q)), sees);
    }
  }
}

TEST(Oracle, ThePlainAttentionAgreesUpToTheRoundingOfItsFormat) {
  Problem problem = small_problem();
  problem.score = softcap_with_bias();
  problem.sink = random_tensor(1, 4, 1, 1, Format::f32, 6);
  const Answer reference = reference_attention(problem);
  const std::array<std::pair<Format, double>, 3> allowed{
      {{Format::f32, 2e-6}, {Format::f16, 4e-3}, {Format::bf16, 3e-2}}};
  for (const auto& [format, tolerance] : allowed) {
    const Answer plain = plain_attention(problem, format);
    EXPECT_TRUE(near("out", plain.out, reference.out, tolerance));
    EXPECT_TRUE(near("lse", plain.lse, reference.lse, 2e-6));
    EXPECT_TRUE(near("query_gradient", plain.query_gradient, reference.query_gradient, tolerance));
    EXPECT_TRUE(near("key_gradient", plain.key_gradient, reference.key_gradient, tolerance));
    EXPECT_TRUE(near("value_gradient", plain.value_gradient, reference.value_gradient, tolerance));
    EXPECT_TRUE(near("sink_gradient", plain.sink_gradient, reference.sink_gradient, tolerance));
    EXPECT_LT(plain.sink_gradient_rounding, tolerance);
    EXPECT_TRUE(passes(plain, reference, plain, format));
  }
}

TEST(Oracle, ThePassRuleRefusesOneMissingKeyOfAThousand) {
  Problem problem;
  problem.query = random_tensor(1, 1, 4, 64, Format::bf16, 1);
  problem.key = random_tensor(1, 1, 1025, 64, Format::bf16, 2);
  problem.value = random_tensor(1, 1, 1025, 64, Format::bf16, 3);
  problem.scale = 0.125;
  const Answer reference = reference_attention(problem);
  const Answer plain = plain_attention(problem, Format::bf16);
  problem.visible = [](Index, Index, Index, Index k) { return k != 1024; };
  EXPECT_FALSE(passes(reference_attention(problem), reference, plain, Format::bf16));
}

TEST(Oracle, SixteenBitFormatsRoundToNearestEven) {
  EXPECT_EQ(to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F), 0x3f80);             // tie, to even
  EXPECT_EQ(to_bf16(1.0F + 0x1p-8F + 0x1p-20F), 0x3f81);  // above the tie
  EXPECT_EQ(to_bf16(1.0F + 3 * 0x1p-8F), 0x3f82);         // tie, to even
  EXPECT_EQ(to_bf16(3.4e38F), 0x7f80);                    // beyond the largest number
  EXPECT_EQ(to_f16(1.0F), 0x3c00);
  EXPECT_EQ(to_f16(1.0F + 0x1p-11F), 0x3c00);
  EXPECT_EQ(to_f16(1.0F + 3 * 0x1p-11F), 0x3c02);
  EXPECT_EQ(to_f16(65504.0F), 0x7bff);
  EXPECT_EQ(to_f16(65519.0F), 0x7bff);
  EXPECT_EQ(to_f16(65520.0F), 0x7c00);
  EXPECT_EQ(to_f16(0x1p-24F), 0x0001);
  EXPECT_EQ(to_f16(0x1p-25F), 0x0000);
  EXPECT_EQ(to_f16(0x1.8p-25F), 0x0001);
  EXPECT_EQ(to_f16(-2.0F), 0xc000);
  for (unsigned bits = 0; bits < 0x10000u; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if (!std::isnan(from_f16(half))) {
      ASSERT_EQ(to_f16(from_f16(half)), half);
    }
    if (!std::isnan(from_bf16(half))) {
      ASSERT_EQ(to_bf16(from_bf16(half)), half);
    }
  }
}

TEST(PassRule, SumsInAnotherOrderMayRoundAQueryGradientToANeighbourAndNothingElse) {
  Answer answer;
  for (Tensor Answer::* tensor :
       {&Answer::out, &Answer::lse, &Answer::query_gradient, &Answer::key_gradient, &Answer::value_gradient}) {
    answer.*tensor = Tensor(1, 1, 2, 2, 0.5);
  }
  Answer other = answer;
  EXPECT_TRUE(same_bits_but_for_sums(other, answer));
  other.query_gradient.values[3] = 0.5 + 1.0 / 512;
  EXPECT_TRUE(same_bits_but_for_sums(other, answer));
  EXPECT_FALSE(same_bits(other, answer));
  other.query_gradient.values[3] = 0.5 + 1.0 / 32;
  EXPECT_FALSE(same_bits_but_for_sums(other, answer));
  other.query_gradient.values[3] = std::nan("");
  EXPECT_FALSE(same_bits_but_for_sums(other, answer));
  other = answer;
  other.key_gradient.values[0] = 0.5 + 1.0 / 512;
  EXPECT_FALSE(same_bits_but_for_sums(other, answer));
}

}  // namespace
}  // namespace oracle
