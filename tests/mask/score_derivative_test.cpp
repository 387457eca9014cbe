// score_derivative_test.cpp -- derivatives of scores against finite differences in binary64 and by hand.
#include "codegen/mask/score_derivative.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "codegen/mask/evaluate.hpp"
#include "codegen/mask/rebuild.hpp"
#include "tests/mask/parsed.hpp"
#include "tests/mask/random_programs.hpp"

namespace flashspan::mask::test {
namespace {

std::string derivative_of(const std::string& text) {
  return derivative_by_score(parsed(text, ProgramKind::score)).to_text();
}

TEST(ScoreDerivative, OfSimpleScores) {
  EXPECT_EQ(derivative_of("score"), "1.0");
  EXPECT_EQ(derivative_of("score + slope * (q - k)"), "1.0");
  EXPECT_EQ(derivative_of("slope - score"), "-1.0");
  EXPECT_EQ(derivative_of("3 * score"), "3.0");
  EXPECT_EQ(derivative_of("slope * bias[q, k]"), "0.0");
  EXPECT_EQ(derivative_of("q"), "0.0");
  EXPECT_EQ(derivative_of("score * slope"), "slope");
  EXPECT_EQ(derivative_of("exp(score)"), "exp(score)");
  EXPECT_EQ(derivative_of("log(score)"), "1.0 / score");
  EXPECT_EQ(derivative_of("where(q < k, score, 2)"), "where(q < k, 1.0, 0.0)");
}

TEST(ScoreDerivative, KeepsTheDeclarationsOfTheScore) {
  const Program score = parsed("score * slope + bias[q, k] + left", ProgramKind::score);
  const Program derivative = derivative_by_score(score);
  EXPECT_EQ(derivative.scalars(), score.scalars());
  EXPECT_EQ(derivative.tensors(), score.tensors());
  EXPECT_EQ(derivative.to_text(), "slope");
}

float derivative_at(const std::string& text, float score) {
  const Program derivative = derivative_by_score(parsed_with(text, {}, {}, ProgramKind::score));
  return evaluate_score(derivative, {}, {.b = 0, .h = 0, .q = 3, .k = 5, .q_len = 8, .kv_len = 8, .score = score});
}

TEST(ScoreDerivative, TakesTheChosenBranchAndTheFirstAtATie) {
  EXPECT_EQ(derivative_at("min(2 * score, 3 * score + 1)", 1), 2);
  EXPECT_EQ(derivative_at("min(2 * score, 3 * score + 1)", -3), 3);
  EXPECT_EQ(derivative_at("min(2 * score, 3 * score + 1)", -1), 2);  // both are -2
  EXPECT_EQ(derivative_at("max(2 * score, 3 * score + 1)", 1), 3);
  EXPECT_EQ(derivative_at("max(2 * score, 3 * score + 1)", -3), 2);
  EXPECT_EQ(derivative_at("max(3 * score + 1, 2 * score)", -1), 3);
  EXPECT_EQ(derivative_at("min(score, 1)", 1), 1);
  EXPECT_EQ(derivative_at("min(1, score)", 1), 0);
  EXPECT_EQ(derivative_at("abs(score)", 2), 1);
  EXPECT_EQ(derivative_at("abs(score)", -2), -1);
  EXPECT_EQ(derivative_at("abs(score)", 0), 0);
  EXPECT_EQ(derivative_at("where(score > 0, score * score, -score)", 3), 6);
  EXPECT_EQ(derivative_at("where(score > 0, score * score, -score)", -3), -1);
}

TEST(ScoreDerivative, IsZeroWhereAQuotientIsZeroByDefinition) {
  EXPECT_EQ(derivative_at("score / (q - 3)", 2), 0);
  EXPECT_EQ(derivative_at("1 / (score - 2)", 2), 0);
}

TEST(ScoreDerivative, DoesNotMixInfinitiesIntoTermsThatAreZero) {
  // d(score * f) with f constant: the term score * f' is not there, so an infinite score does not make a NaN.
  EXPECT_EQ(derivative_at("score * 2", std::numeric_limits<float>::infinity()), 2);
}

/// Derivatives by every lookup of a tensor of reals, in the order in which the score has them.
std::vector<std::string> derivatives_by_lookups(const Program& score) {
  std::vector<std::string> texts;
  for (const NodeId id : live_nodes(score)) {
    const Node& node = score.node(id);
    if (node.op == Op::lookup && node.type == ValueType::real)
      texts.push_back(derivative_by_lookup(score, id).to_text());
  }
  return texts;
}

TEST(ScoreDerivative, ByALookupTakesTheScoreAndOtherLookupsAsConstants) {
  const auto of = [](const std::string& text) { return derivatives_by_lookups(parsed(text, ProgramKind::score)); };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(of("score + bias[q, k]"), Texts{"1.0"});
  EXPECT_EQ(of("score * bias[q, k]"), Texts{"score"});
  EXPECT_EQ(of("bias[q, 0] * bias[k, 0]"), (Texts{"bias[k, 0]", "bias[q, 0]"}));
  EXPECT_EQ(of("bias[q, k] + bias[q, k]"), Texts{"2.0"}) << "one lookup";
  EXPECT_EQ(of("where(bias[q, 0] > 0, score, bias[k, 0])"), (Texts{"0.0", "where(0.0 < bias[q, 0], 0.0, 1.0)"}));
  EXPECT_EQ(of("score / bias[q, k]"), Texts{"-(score / bias[q, k]) / bias[q, k]"});
}

struct Smooth {
  const char* text;
  std::function<double(double)> value;
  double lo, hi;
};

TEST(ScoreDerivative, AgreesWithFiniteDifferencesInBinary64) {
  const std::vector<Smooth> smooth = {
      {"tanh(score / 30) * 30", [](double s) { return std::tanh(s / 30) * 30; }, -80, 80},
      {"50 * tanh(score / 50) + 0.25 * (q - k)", [](double s) { return 50 * std::tanh(s / 50) - 0.5; }, -80, 80},
      {"exp(-score * score / 8)", [](double s) { return std::exp(-s * s / 8); }, -3, 3},
      {"log(score * score + 1)", [](double s) { return std::log(s * s + 1); }, -4, 4},
      {"sqrt(score * score + 2) - score / 3", [](double s) { return std::sqrt(s * s + 2) - s / 3; }, -4, 4},
      {"score / (1 + exp(-score))", [](double s) { return s / (1 + std::exp(-s)); }, -6, 6},
      {"(score + 1) * (score - 2) * score", [](double s) { return (s + 1) * (s - 2) * s; }, -2, 3},
      {"tanh(exp(score / 4) - score * score)", [](double s) { return std::tanh(std::exp(s / 4) - s * s); }, -2, 2},
      {"max(score * score, 1) - abs(score - 7)", [](double s) { return std::max(s * s, 1.0) - std::fabs(s - 7); }, 1.1,
       6.5},
      {"where(score < 0, -score * score, score / (score + 2))", [](double s) { return s < 0 ? -s * s : s / (s + 2); },
       0.1, 5}};
  for (const Smooth& function : smooth) {
    for (int step = 0; step <= 40; ++step) {
      const double score = static_cast<float>(function.lo + (function.hi - function.lo) * step / 40);
      const double h = 1e-5;
      const double expected = (function.value(score + h) - function.value(score - h)) / (2 * h);
      const float got = derivative_at(function.text, static_cast<float>(score));
      EXPECT_NEAR(got, expected, 2e-5 * (1 + std::fabs(expected))) << function.text << " at " << score;
    }
  }
}

TEST(ScoreDerivative, OfRandomScoresCanBeParsedAgain) {
  std::mt19937_64 random(21);
  for (int round = 0; round < 500; ++round) {
    Environment environment = random_environment(random);
    const Expression expression =
        random_expression(random, ValueType::real, {.may_use_score = true, .may_use_reals = true, .depth = 5});
    auto score =
        parse(expression.text, ProgramKind::score, scalar_declarations(environment), tensor_declarations(environment));
    ASSERT_TRUE(score);
    const Program derivative = derivative_by_score(*score);
    EXPECT_EQ(derivative.scalars(), score->scalars());
    const auto read = Program::from_signature(derivative.to_signature());
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(read->to_signature(), derivative.to_signature());
  }
}

TEST(ScoreDerivative, OfDeeplyNestedScoresStaysReadable) {
  std::string text = "score";
  for (int level = 0; level < 60; ++level) text.insert(0, "tanh(").append(" * 0.5)");
  const Program derivative = derivative_by_score(parsed(text, ProgramKind::score));
  EXPECT_TRUE(Program::from_signature(derivative.to_signature()));
}

}  // namespace
}  // namespace flashspan::mask::test
