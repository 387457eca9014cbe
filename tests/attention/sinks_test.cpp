// sinks_test.cpp -- a sink takes weight from every row of its head and gives it no value: both directions, with rows
// that see nothing, scores, infinities and memory that must not show.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class Sinks : public AttentionTest {
 protected:
  /// Causal with grouped heads and lengths off every tile; all inputs and gradients.
  static Scenario causal_scenario() {
    return {.shape = shape_of(2, 4, 2, 150, 200, 64),
            .mask = Mask::causal(),
            .visible = [](Index, Index, Index q, Index k) { return k <= q + 50; },
            .lse_gradient = true,
            .with_sink = true};
  }
};
FLASHSPAN_ON_EVERY_PLACE(Sinks);

TEST_P(Sinks, EveryResultIsThatOfOneMoreColumn) {
  expect_passes(causal_scenario());
  Scenario without_lse_gradient = causal_scenario();
  without_lse_gradient.lse_gradient = false;
  expect_passes(without_lse_gradient, 2);
}

TEST_P(Sinks, WithoutAMaskAndWithManyKeysAHeadItIsTheSame) {
  expect_passes({.shape = shape_of(1, 6, 1, 70, 333, 128), .lse_gradient = true, .with_sink = true});
}

TEST_P(Sinks, HeadDimsOffEveryTileAreServed) {
  for (const auto& [head_dim_qk, head_dim_v] : {std::pair<Index, Index>{40, 72}, {192, 128}, {256, 256}}) {
    SCOPED_TRACE(head_dim_qk);
    Scenario scenario = causal_scenario();
    scenario.shape = shape_of(1, 2, 1, 150, 200, head_dim_qk, head_dim_v);
    expect_passes(scenario);
  }
}

TEST_P(Sinks, UnalignedRowsAreServed) {
  Scenario scenario = causal_scenario();
  scenario.query = scenario.key = scenario.value = scenario.out = scenario.out_gradient = {.row_gap = 3};
  expect_passes(scenario);
}

TEST_P(Sinks, LargeSinksTakeNearlyAllAndSmallOnesNearlyNothing) {
  Scenario scenario = causal_scenario();
  Inputs inputs = random_inputs(scenario.shape);
  inputs.sink.values = {12, 4, -4, -200};
  expect_passes(scenario, inputs);
}

TEST_P(Sinks, NeitherTheScaleNorTheScoreChangesThem) {
  Scenario scenario = causal_scenario();
  Reals slopes = {0.5F, 0.25F, 0.125F, 0.0625F};
  scenario.scale = 0.3F;
  scenario.score = expect_value(Score::parse("cap * tanh(score / cap) - slope[h] * abs(q + 50 - k)",
                                             {{"slope", view_of(slopes, {4})}}, {{"cap", 1.5}}));
  scenario.score_function = oracle::ScoreFunction{
      [slopes](double score, Index, Index h, Index q, Index k) {
        return 1.5 * std::tanh(score / 1.5) -
               static_cast<double>(slopes[static_cast<std::size_t>(h)]) * static_cast<double>(std::abs(q + 50 - k));
      },
      [](double score, Index, Index, Index, Index) { return 1 - std::pow(std::tanh(score / 1.5), 2); }};
  expect_passes(scenario);
}

TEST_P(Sinks, ANegativeOrZeroScaleLeavesThemAlone) {
  for (const float scale : {0.0F, -0.2F}) {
    SCOPED_TRACE(scale);
    Scenario scenario = causal_scenario();
    scenario.scale = scale;
    expect_passes(scenario);
  }
}

TEST_P(Sinks, ARowThatSeesNothingIsZeroAndItsLseIsTheSink) {
  // Rows 0 .. 79 of 150 see nothing: whole tiles of them, and part of one.
  Scenario scenario{.shape = shape_of(1, 2, 1, 150, 70, 64),
                    .mask = Mask::causal(),
                    .visible = [](Index, Index, Index q, Index k) { return k <= q - 80; },
                    .lse_gradient = true,
                    .with_sink = true};
  const Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer answer = expect_passes(scenario, inputs);
  for (Index h = 0; h < 2; ++h) {
    for (Index q = 0; q < 80; ++q) {
      ASSERT_EQ(answer.lse.at(0, h, q), inputs.sink.at(0, h, 0)) << q;
      for (Index d = 0; d < 64; ++d) {
        ASSERT_EQ(answer.out.at(0, h, q, d), 0.0);
        ASSERT_EQ(answer.query_gradient.at(0, h, q, d), 0.0);
      }
    }
  }
}

TEST_P(Sinks, WithoutAnyVisibleKeyTheGradientIsTheSumOfTheLseGradients) {
  for (const Index keys : {0, 130}) {
    SCOPED_TRACE(keys);
    Scenario scenario{
        .shape = shape_of(3, 2, 1, 70, keys, 64), .mask = ~Mask::full(), .lse_gradient = true, .with_sink = true};
    Inputs inputs = random_inputs(scenario.shape);
    // Nobody uses these: out does not depend on the sink where it is zero.
    std::fill(inputs.out_gradient.values.begin(), inputs.out_gradient.values.end(), std::nan(""));
    const oracle::Answer answer = run(scenario, inputs);
    EXPECT_TRUE(all_equal("out", answer.out, 0.0));
    EXPECT_TRUE(all_equal("query_gradient", answer.query_gradient, 0.0));
    EXPECT_TRUE(all_equal("key_gradient", answer.key_gradient, 0.0));
    EXPECT_TRUE(all_equal("value_gradient", answer.value_gradient, 0.0));
    std::array<double, 2> sums{};
    for_each_row(answer.lse, [&](Index b, Index h, Index q) {
      EXPECT_EQ(answer.lse.at(b, h, q), inputs.sink.at(0, h, 0));
      sums[static_cast<std::size_t>(h)] += inputs.lse_gradient.at(b, h, q);
    });
    EXPECT_NEAR(answer.sink_gradient.at(0, 0, 0), sums[0], 1e-4);
    EXPECT_NEAR(answer.sink_gradient.at(0, 1, 0), sums[1], 1e-4);
  }
}

TEST_P(Sinks, TheOutGradientOfARowThatSeesNothingDoesNotShow) {
  // Rows 100 .. 149 see nothing, the first of them in a tile with rows that do.
  Scenario scenario{.shape = shape_of(1, 2, 1, 150, 150, 64),
                    .mask = expect_value(Mask::parse("(k <= q) & (q < 100)")),
                    .lse_gradient = true,
                    .with_sink = true};
  Inputs inputs = random_inputs(scenario.shape);
  oracle::Answer expected;
  for (const double hidden : {0.0, std::nan(""), infinity}) {
    SCOPED_TRACE(hidden);
    for (Index h = 0; h < 2; ++h) {
      for (Index q = 100; q < 150; ++q) std::fill_n(inputs.out_gradient.row(0, h, q), 64, hidden);
    }
    const oracle::Answer answer = run(scenario, inputs);
    if (hidden == 0.0) expected = answer;
    EXPECT_TRUE(same_bits_but_for_sums(answer, expected));
    for (Index h = 0; h < 2; ++h) EXPECT_TRUE(std::isfinite(answer.sink_gradient.at(0, h, 0)));
  }
}

TEST_P(Sinks, HiddenKeysAndValuesDoNotShowBesideASink) {
  Scenario scenario = causal_scenario();
  scenario.mask = expect_value(Mask::parse("(k % 3 != 1) & (k <= q + 50)"));
  Inputs inputs = random_inputs(scenario.shape);
  oracle::Answer expected;
  for (const double hidden : {0.0, std::nan(""), infinity}) {
    SCOPED_TRACE(hidden);
    for (oracle::Tensor* tensor : {&inputs.key, &inputs.value}) {
      for_each_row(*tensor, [&](Index b, Index h, Index k) {
        if (k % 3 == 1) std::fill_n(tensor->row(b, h, k), tensor->columns, hidden);
      });
    }
    const oracle::Answer answer = run(scenario, inputs);
    if (hidden == 0.0) expected = answer;
    EXPECT_TRUE(same_bits_but_for_sums(answer, expected));
  }
}

TEST_P(Sinks, NoQueriesOrNoBatchGiveAZeroGradient) {
  for (const auto& [batch, q_len] : {std::pair<Index, Index>{2, 0}, {0, 5}}) {
    Scenario scenario{.shape = shape_of(batch, 3, 1, q_len, 40, 64), .with_sink = true};
    const oracle::Answer answer = run(scenario, random_inputs(scenario.shape));
    EXPECT_TRUE(all_equal("sink_gradient", answer.sink_gradient, 0.0));
  }
}

TEST_P(Sinks, MinusInfinityIsNoSinkToTheBit) {
  Scenario scenario = causal_scenario();
  scenario.shape = shape_of(2, 4, 2, 150, 70, 64);  // rows that see nothing too
  Inputs inputs = random_inputs(scenario.shape);
  std::fill(inputs.sink.values.begin(), inputs.sink.values.end(), -infinity);
  const oracle::Answer with = run(scenario, inputs);
  EXPECT_TRUE(all_equal("sink_gradient", with.sink_gradient, 0.0));
  scenario.with_sink = false;
  oracle::Answer without = run(scenario, inputs);
  without.sink_gradient = with.sink_gradient;
  EXPECT_TRUE(same_bits_but_for_sums(with, without));
}

TEST_P(Sinks, PlusInfinityTakesAllWeightAndLeavesFiniteGradients) {
  Scenario scenario = causal_scenario();
  Inputs inputs = random_inputs(scenario.shape);
  inputs.sink.at(0, 1, 0) = infinity;
  const oracle::Answer answer = run(scenario, inputs);
  double lse_gradients = 0;
  for (Index b = 0; b < 2; ++b) {
    for (Index q = 0; q < 150; ++q) {
      ASSERT_EQ(answer.lse.at(b, 1, q), infinity);
      for (Index d = 0; d < 64; ++d) {
        ASSERT_EQ(answer.out.at(b, 1, q, d), 0.0);
        ASSERT_EQ(answer.query_gradient.at(b, 1, q, d), 0.0);
      }
      lse_gradients += inputs.lse_gradient.at(b, 1, q);
    }
  }
  EXPECT_NEAR(answer.sink_gradient.at(0, 1, 0), lse_gradients, 1e-4);
  // Heads 0 and 1 share keys: what is left is head 0's alone.
  const oracle::Answer expected = oracle::reference_attention(problem(scenario, inputs));
  const double tolerance = 40 * oracle::unit_roundoff(format());
  EXPECT_TRUE(near("key_gradient", answer.key_gradient, expected.key_gradient, tolerance));
  EXPECT_TRUE(near("value_gradient", answer.value_gradient, expected.value_gradient, tolerance));
}

TEST_P(Sinks, ANanMakesItsHeadNanAndNoOther) {
  Scenario scenario = causal_scenario();
  scenario.shape = shape_of(1, 2, 2, 150, 70, 64);  // rows that see nothing too
  Inputs inputs = random_inputs(scenario.shape);
  inputs.sink.at(0, 1, 0) = std::nan("");
  const oracle::Answer answer = run(scenario, inputs);
  for (Index h = 0; h < 2; ++h) {
    for (Index q = 0; q < 150; ++q) {
      ASSERT_EQ(std::isnan(answer.lse.at(0, h, q)), h == 1) << q;
      for (Index d = 0; d < 64; ++d) ASSERT_EQ(std::isnan(answer.out.at(0, h, q, d)), h == 1) << q;
    }
    EXPECT_EQ(std::isnan(answer.sink_gradient.at(0, h, 0)), h == 1);
  }
}

TEST_P(Sinks, OneSinkMayStandForAllHeads) {
  Scenario scenario = causal_scenario();
  Inputs inputs = random_inputs(scenario.shape);
  std::fill(inputs.sink.values.begin(), inputs.sink.values.end(), inputs.sink.values.front());
  const oracle::Answer one_each = run(scenario, inputs);
  std::fill(inputs.sink.values.begin() + 1, inputs.sink.values.end(), std::nan(""));  // behind a stride of 0
  scenario.expanded_sink = true;
  EXPECT_TRUE(same_bits_but_for_sums(run(scenario, inputs), one_each));
}

TEST_P(Sinks, SinksMayLieApart) {
  Scenario scenario = causal_scenario();
  scenario.sink = {.offset = 1, .row_gap = 2};
  expect_passes(scenario);
}

TEST_P(Sinks, TheBackwardTakesTheSinkForItsGradientOnly) {
  Scenario scenario = causal_scenario();
  const Inputs inputs = random_inputs(scenario.shape);
  oracle::Answer with = run(scenario, inputs);
  scenario.with_sink_gradient = false;
  const oracle::Answer without = run(scenario, inputs);
  EXPECT_TRUE(without.sink_gradient.values.empty());
  with.sink_gradient = {};
  EXPECT_TRUE(same_bits_but_for_sums(without, with));
}

TEST_P(Sinks, ACallWithASinkRunsTheKernelsOfOneWithout) {
  Scenario scenario = causal_scenario();
  const Inputs inputs = random_inputs(scenario.shape);
  const PlacedCall with(scenario, inputs, device(), dtype());
  scenario.with_sink = false;
  const PlacedCall without(scenario, inputs, device(), dtype());
  const KernelRecord forward = expect_value(attention().prepare(without.forward_call()));
  const KernelRecord backward = expect_value(attention().prepare(without.backward_call()));
  const KernelRecord forward_with = expect_value(attention().prepare(with.forward_call()));
  const KernelRecord backward_with = expect_value(attention().prepare(with.backward_call()));
  EXPECT_EQ(forward_with.outcome, "loaded");
  EXPECT_EQ(forward_with.key, forward.key);
  EXPECT_EQ(backward_with.outcome, "loaded");
  EXPECT_EQ(backward_with.key, backward.key);
}

TEST_P(Sinks, TheGradientRepeatsItsBits) {
  Scenario scenario = causal_scenario();
  scenario.shape = shape_of(2, 4, 2, on_cuda() ? 1500 : 300, 200, 64);
  scenario.deterministic = true;
  const Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer expected = run(scenario, inputs);
  for (int repeat = 0; repeat < (on_cuda() ? 20 : 4); ++repeat) {
    ASSERT_TRUE(same_bits(run(scenario, inputs), expected)) << "run " << repeat;
  }
}

}  // namespace
}  // namespace flashspan::tests
