// score_gradients_test.cpp -- gradients of the tensors that a score looks up: tables by distance, by head, by key and
// by query, looked up once or often, inside and outside, through choices, functions and other tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

using oracle::TakeSlope;

double one(double, Index, Index, Index, Index) { return 1.0; }

/// Of a row-major table.
double value_at(const Reals& table, Index element) {
  return static_cast<double>(table[static_cast<std::size_t>(element)]);
}

class ScoreGradients : public AttentionTest {
 protected:
  /// Causal with grouped heads and lengths off every tile.
  static Scenario causal_scenario() {
    return {.shape = shape_of(2, 4, 2, 100, 150, 64),
            .mask = Mask::causal(),
            .visible = [](Index, Index, Index q, Index k) { return k <= q + 50; },
            .lse_gradient = true};
  }

  /// In both modes; the deterministic one gives the same bits again.
  void expect_gradients(Scenario scenario, const Inputs& inputs) {
    expect_passes(scenario, inputs);
    scenario.deterministic = true;
    const oracle::Answer answer = expect_passes(scenario, inputs);
    EXPECT_TRUE(same_bits(run(scenario, inputs), answer));
  }
  void expect_gradients(const Scenario& scenario) { expect_gradients(scenario, random_inputs(scenario.shape)); }

  /// score + bias[h, q - k + 149] under causal_scenario(): every distance is that of many pairs.
  Scenario relative_bias() {
    Scenario scenario = causal_scenario();
    scenario.score = expect_value(Score::parse("score + bias[h, q - k + 149]", {{"bias", view_of(bias_, {4, 250})}}));
    const auto element = [](Index h, Index q, Index k) { return h * 250 + q - k + 149; };
    scenario.score_function = {
        [this, element](double score, Index, Index h, Index q, Index k) {
          return score + value_at(bias_, element(h, q, k));
        },
        one,
        [element](double, Index, Index h, Index q, Index k, const TakeSlope& take) { take(0, element(h, q, k), 1); }};
    scenario.score_gradients = {{"bias", {4, 250}}};
    return scenario;
  }

  /// score + bias[b, h, q, k] of any dtype: every element is that of one pair.
  Scenario pair_bias(const AttentionShape& shape, TensorView view, const std::function<double(Index)>& value) {
    Scenario scenario{.shape = shape};
    scenario.score = expect_value(Score::parse("score + bias[b, h, q, k]", {{"bias", view}}));
    const auto element = [shape](Index b, Index h, Index q, Index k) {
      return ((b * shape.query_heads + h) * shape.q_len + q) * shape.kv_len + k;
    };
    scenario.score_function = {[value, element](double score, Index b, Index h, Index q, Index k) {
                                 return score + value(element(b, h, q, k));
                               },
                               one,
                               [element](double, Index b, Index h, Index q, Index k, const TakeSlope& take) {
                                 take(0, element(b, h, q, k), 1);
                               }};
    scenario.score_gradients = {{"bias", {shape.batch, shape.query_heads, shape.q_len, shape.kv_len}}};
    return scenario;
  }

  Reals bias_ = random_reals(std::size_t{4} * 250, 1, 8);
};
FLASHSPAN_ON_EVERY_PLACE(ScoreGradients);

TEST_P(ScoreGradients, ARelativeBiasSumsOverAllPairsOfADistanceToWhereverItStands) {
  Scenario scenario = relative_bias();
  expect_gradients(scenario);
  scenario.score_gradient = {.offset = 1, .row_gap = 5};
  expect_gradients(scenario);
}

TEST_P(ScoreGradients, UnalignedRowsAndOtherHeadDimsAreServed) {
  for (const auto& [head_dim_qk, head_dim_v] : {std::pair<Index, Index>{40, 72}, {128, 128}, {192, 128}, {256, 256}}) {
    SCOPED_TRACE(head_dim_qk);
    Scenario scenario = relative_bias();
    scenario.shape = shape_of(1, 4, 2, 100, 150, head_dim_qk, head_dim_v);
    expect_gradients(scenario);
  }
  Scenario scenario = relative_bias();
  scenario.query = scenario.key = scenario.value = scenario.out = scenario.out_gradient = {.row_gap = 3};
  expect_gradients(scenario);
}

TEST_P(ScoreGradients, FactorsOfHeadsAndBiasesOfKeysAreSeparate) {
  Reals factors = random_reals(4, 1, 3);
  Reals biases = random_reals(std::size_t{4} * 150, 1, 4);
  Scenario scenario = causal_scenario();
  scenario.score = expect_value(Score::parse("score * factor[h] + bias[h, k]",
                                             {{"bias", view_of(biases, {4, 150})}, {"factor", view_of(factors, {4})}}));
  scenario.score_function = {[&](double score, Index, Index h, Index, Index k) {
                               return score * value_at(factors, h) + value_at(biases, h * 150 + k);
                             },
                             [&](double, Index, Index h, Index, Index) { return value_at(factors, h); },
                             [](double score, Index, Index h, Index, Index k, const TakeSlope& take) {
                               take(0, h, score);
                               take(1, h * 150 + k, 1);
                             }};
  scenario.score_gradients = {{"factor", {4}}, {"bias", {4, 150}}};
  expect_gradients(scenario);
  // One of them alone.
  scenario.score_gradients = {{"factor", {4}}};
  scenario.score_function->slopes = [](double score, Index, Index h, Index, Index, const TakeSlope& take) {
    take(0, h, score);
  };
  expect_gradients(scenario);
}

TEST_P(ScoreGradients, ABiasOfTheRowTakesTheGradientOfLseOnly) {
  Reals rows = random_reals(std::size_t{2} * 100, 1, 3);
  Scenario scenario = causal_scenario();
  scenario.score = expect_value(Score::parse("score + row[b, q]", {{"row", view_of(rows, {2, 100})}}));
  scenario.score_function = {
      [&](double score, Index b, Index, Index q, Index) { return score + value_at(rows, b * 100 + q); }, one,
      [](double, Index b, Index, Index q, Index, const TakeSlope& take) { take(0, b * 100 + q, 1); }};
  scenario.score_gradients = {{"row", {2, 100}}};
  expect_gradients(scenario);
}

TEST_P(ScoreGradients, GradientsAreBinary32WhateverTheTensorIs) {
  const AttentionShape shape = shape_of(2, 2, 1, 70, 65, 64);
  const Reals reals = random_reals(std::size_t{2} * 2 * 70 * 65, 1, 3);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    SCOPED_TRACE(to_string(dtype));
    std::vector<std::uint16_t> stored;
    for (const float real : reals) {
      stored.push_back(dtype == DType::f16 ? oracle::to_f16(real) : oracle::to_bf16(real));
    }
    const auto value = [&](Index element) {
      const std::uint16_t bits = stored[static_cast<std::size_t>(element)];
      return static_cast<double>(dtype == DType::f16 ? oracle::from_f16(bits) : oracle::from_bf16(bits));
    };
    expect_gradients(pair_bias(shape, TensorView::contiguous(stored.data(), dtype, {2, 2, 70, 65}), value));
  }
}

TEST_P(ScoreGradients, BucketsOfDistancesAreLookedUpThroughAnotherTensor) {
  Integers buckets;
  for (Index distance = 0; distance < 250; ++distance) {
    buckets.push_back(static_cast<std::int32_t>(std::log2(static_cast<double>(distance + 1))));
  }
  Reals biases = random_reals(std::size_t{4} * 8, 1, 4);
  Scenario scenario = causal_scenario();
  scenario.score = expect_value(Score::parse("2 * tanh((score + bias[h, bucket[abs(q - k)]]) / 2)",
                                             {{"bias", view_of(biases, {4, 8})}, {"bucket", view_of(buckets, {250})}}));
  const auto element = [buckets](Index h, Index q, Index k) {
    return h * 8 + buckets[static_cast<std::size_t>(std::abs(q - k))];
  };
  const auto slope = [&biases, element](double score, Index h, Index q, Index k) {
    return 1 - std::pow(std::tanh((score + value_at(biases, element(h, q, k))) / 2), 2);
  };
  scenario.score_function = {[&biases, element](double score, Index, Index h, Index q, Index k) {
                               return 2 * std::tanh((score + value_at(biases, element(h, q, k))) / 2);
                             },
                             [slope](double score, Index, Index h, Index q, Index k) { return slope(score, h, q, k); },
                             [element, slope](double score, Index, Index h, Index q, Index k, const TakeSlope& take) {
                               take(0, element(h, q, k), slope(score, h, q, k));
                             }};
  scenario.score_gradients = {{"bias", {4, 8}}};
  expect_gradients(scenario);
}

TEST_P(ScoreGradients, LookupsOutsideTakeNoneAndSeveralOfOneTensorAddUp) {
  Reals table = random_reals(120, 1, 5);
  Scenario scenario = causal_scenario();
  scenario.score =
      expect_value(Score::parse("score + t[q + 0 * k] * t[k - 20] - t[q - k]", {{"t", view_of(table, {120})}}));
  const auto found = [&table](Index element) { return element < 0 || element >= 120 ? 0.0 : value_at(table, element); };
  scenario.score_function = {
      [found](double score, Index, Index, Index q, Index k) { return score + found(q) * found(k - 20) - found(q - k); },
      one,
      [found](double, Index, Index, Index q, Index k, const TakeSlope& take) {
        const auto take_inside = [&](Index element, double slope) {
          if (element >= 0 && element < 120) take(0, element, slope);
        };
        take_inside(q, found(k - 20));
        take_inside(k - 20, found(q));
        take_inside(q - k, -1);
      }};
  scenario.score_gradients = {{"t", {120}}};
  expect_gradients(scenario);
}

TEST_P(ScoreGradients, AnExpandedTensorTakesAGradientForEachOfItsElements) {
  Scenario scenario = relative_bias();
  TensorView expanded = view_of(bias_, {4, 250});
  expanded.strides[0] = 0;  // every head has the first one's
  scenario.score = expect_value(Score::parse("score + bias[h, q - k + 149]", {{"bias", expanded}}));
  scenario.score_function->value = [this](double score, Index, Index, Index q, Index k) {
    return score + value_at(bias_, q - k + 149);
  };
  expect_gradients(scenario);
}

TEST_P(ScoreGradients, ChoicesPassTheGradientToWhatWasChosenAndComparisonsTakeNone) {
  Reals floors = random_reals(150, 1, 4);
  Reals switches = random_reals(100, 1, 5);
  Scenario scenario = causal_scenario();
  scenario.score =
      expect_value(Score::parse("where(switch[q] > 0.25, max(score, floor[k]), score / 2)",
                                {{"switch", view_of(switches, {100})}, {"floor", view_of(floors, {150})}}));
  const auto on = [&switches](Index q) { return value_at(switches, q) > 0.25; };
  scenario.score_function = {[&floors, on](double score, Index, Index, Index q, Index k) {
                               return on(q) ? std::max(score, value_at(floors, k)) : score / 2;
                             },
                             [&floors, on](double score, Index, Index, Index q, Index k) {
                               return on(q) ? (score >= value_at(floors, k) ? 1.0 : 0.0) : 0.5;
                             },
                             [&floors, on](double score, Index, Index, Index q, Index k, const TakeSlope& take) {
                               if (on(q) && score < value_at(floors, k)) take(1, k, 1);
                             }};
  scenario.score_gradients = {{"switch", {100}}, {"floor", {150}}};
  expect_gradients(scenario);
  EXPECT_TRUE(all_equal("switch", run(scenario, random_inputs(scenario.shape)).score_gradients[0], 0.0));
}

TEST_P(ScoreGradients, DocumentsAndRowsThatSeeNothingAddNothing) {
  Integers documents = document_ids({37, 64, 1, 90, 8});
  Scenario scenario = relative_bias();
  scenario.shape = shape_of(1, 4, 2, 100, 200, 64);
  scenario.mask =
      expect_value(Mask::parse("(doc[q] == doc[k]) & (q >= k) & (q % 50 != 7)", {{"doc", view_of(documents, {200})}}));
  scenario.visible = [documents](Index, Index, Index q, Index k) {
    return documents[static_cast<std::size_t>(q)] == documents[static_cast<std::size_t>(k)] && q >= k && q % 50 != 7;
  };
  expect_gradients(scenario);
}

TEST_P(ScoreGradients, MemoryThatIsHiddenDoesNotShow) {
  Scenario scenario = relative_bias();
  scenario.mask = expect_value(Mask::parse("(k % 3 != 1) & (q != 40) & (k <= q + 50)"));
  scenario.deterministic = true;
  Inputs inputs = random_inputs(scenario.shape);
  oracle::Answer expected;
  for (const double hidden : {0.0, std::nan(""), infinity}) {
    SCOPED_TRACE(hidden);
    for (oracle::Tensor* tensor : {&inputs.key, &inputs.value}) {
      for_each_row(*tensor, [&](Index b, Index h, Index k) {
        if (k % 3 == 1) std::fill_n(tensor->row(b, h, k), tensor->columns, hidden);
      });
    }
    for (Index h = 0; h < 4; ++h) {
      for (oracle::Tensor* tensor : {&inputs.query, &inputs.out_gradient})
        std::fill_n(tensor->row(1, h, 40), 64, hidden);
    }
    const oracle::Answer answer = run(scenario, inputs);
    if (hidden == 0.0) expected = answer;
    EXPECT_TRUE(same_bits(answer, expected));
  }
}

TEST_P(ScoreGradients, ANanReachesTheElementsOfThePairsThatSeeIt) {
  const AttentionShape shape = shape_of(1, 2, 2, 70, 65, 64);
  Reals values = random_reals(std::size_t{2} * 70 * 65, 1, 3);
  Scenario scenario =
      pair_bias(shape, view_of(values, {1, 2, 70, 65}), [&](Index element) { return value_at(values, element); });
  Inputs inputs = random_inputs(shape);
  inputs.out_gradient.at(0, 1, 33, 5) = std::nan("");
  for (const bool deterministic : {false, true}) {
    scenario.deterministic = deterministic;
    const oracle::Answer answer = run(scenario, inputs);
    for (Index element = 0; element < Index{2} * 70 * 65; ++element) {
      const bool reached = element / 65 == 70 + 33;
      ASSERT_EQ(std::isnan(answer.score_gradients[0].at(0, 0, 0, element)), reached) << element;
    }
  }
}

TEST_P(ScoreGradients, AddendsOfAnySizeAreSummedAlike) {
  // Rows of dO whose sizes are far apart, down to what binary32 holds as subnormal numbers.
  Scenario scenario = relative_bias();
  scenario.lse_gradient = false;
  scenario.deterministic = true;
  Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer usual = run(scenario, inputs);
  for (double& value : inputs.out_gradient.values) value = std::ldexp(value, -100);
  const oracle::Answer tiny = run(scenario, inputs);
  const oracle::Tensor& expected = usual.score_gradients[0];
  double largest = 0;
  for (const double value : expected.values) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    // `out` is the same, so all else scales exactly.
    EXPECT_NEAR(std::ldexp(tiny.score_gradients[0].values[i], 100), expected.values[i], 1e-6 * largest) << i;
  }
}

TEST_P(ScoreGradients, NoQueriesNoKeysOrNoBatchGiveZeros) {
  for (const auto& [batch, q_len, kv_len] : {std::array<Index, 3>{2, 0, 40}, {0, 5, 40}, {2, 5, 0}}) {
    Scenario scenario = relative_bias();
    scenario.shape = shape_of(batch, 4, 2, q_len, kv_len, 64);
    scenario.mask.reset();
    for (const bool deterministic : {false, true}) {
      scenario.deterministic = deterministic;
      const oracle::Answer answer = run(scenario, random_inputs(scenario.shape));
      EXPECT_TRUE(all_equal("bias", answer.score_gradients[0], 0.0));
    }
  }
}

TEST_P(ScoreGradients, WhatIsNotAskedForChangesNoKernelAndNoOtherResult) {
  Scenario scenario = relative_bias();
  scenario.deterministic = true;
  const Inputs inputs = random_inputs(scenario.shape);
  const PlacedCall with(scenario, inputs, device(), dtype());
  oracle::Answer expected = run(scenario, inputs);
  scenario.score_gradients.clear();
  const PlacedCall without(scenario, inputs, device(), dtype());
  const KernelRecord plain = expect_value(attention().prepare(without.backward_call()));
  const KernelRecord asking = expect_value(attention().prepare(with.backward_call()));
  EXPECT_NE(plain.key, asking.key);
  EXPECT_EQ(plain.spec.find("gradients of"), std::string::npos) << plain.spec;
  EXPECT_NE(asking.spec.find("gradients of bias"), std::string::npos) << asking.spec;
  expected.score_gradients.clear();
  EXPECT_TRUE(same_bits(run(scenario, inputs), expected));
}

TEST_P(ScoreGradients, TheDeterministicSumsOfManyTilesRepeatTheirBits) {
  Scenario scenario = relative_bias();
  scenario.shape = on_cuda() ? shape_of(4, 4, 2, 1000, 1000, 64) : shape_of(2, 4, 2, 300, 300, 64);
  scenario.mask = Mask::causal();
  scenario.deterministic = true;
  const Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer expected = run(scenario, inputs);
  for (int repeat = 0; repeat < (on_cuda() ? 30 : 4); ++repeat) {
    ASSERT_TRUE(same_bits(run(scenario, inputs), expected)) << "run " << repeat;
  }
}

}  // namespace
}  // namespace flashspan::tests
