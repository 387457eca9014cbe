// nan_inf_leak_test.cpp -- what is masked never shows, whatever it holds; what is visible always does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class NanInfLeak : public AttentionTest {
 protected:
  /// The run with hidden rows of K and V set to `hidden`; a row is hidden where `is_hidden(b, s)`.
  template <typename IsHidden>
  oracle::Answer run_with(const Scenario& scenario, Inputs inputs, double hidden, const IsHidden& is_hidden) {
    for (oracle::Tensor* tensor : {&inputs.key, &inputs.value}) {
      for_each_row(*tensor, [&](Index b, Index h, Index s) {
        if (is_hidden(b, s)) std::fill_n(tensor->row(b, h, s), tensor->columns, hidden);
      });
    }
    return run(scenario, inputs);
  }

  template <typename IsHidden>
  void expect_no_leak(const Scenario& scenario, const IsHidden& is_hidden) {
    const Inputs inputs = random_inputs(scenario.shape);
    const oracle::Answer expected = run_with(scenario, inputs, 0, is_hidden);
    for (double hidden : {std::nan(""), infinity, -infinity}) {
      SCOPED_TRACE(hidden);
      const oracle::Answer answer = run_with(scenario, inputs, hidden, is_hidden);
      EXPECT_TRUE(same_bits_but_for_sums(answer, expected));
      for (Index b = 0; b < scenario.shape.batch; ++b) {
        for (Index s = 0; s < scenario.shape.kv_len; ++s) {
          if (!is_hidden(b, s)) continue;
          EXPECT_EQ(answer.key_gradient.at(b, 0, s, 3), 0.0) << "batch " << b << ", key " << s;
          EXPECT_EQ(answer.value_gradient.at(b, 0, s, 3), 0.0) << "batch " << b << ", key " << s;
        }
      }
    }
  }
};
FLASHSPAN_ON_EVERY_PLACE(NanInfLeak);

// F038
TEST_P(NanInfLeak, ACacheBeyondItsUsedLengthDoesNotShow) {
  Integers used = {32, 64, 96, 48};
  const Mask mask = expect_value(Mask::parse("k < used[b]", {{"used", view_of(used, {4})}}));
  for (Index q_len : {1, 40}) {
    expect_no_leak({.shape = shape_of(4, 2, 1, q_len, 128, 64), .mask = mask},
                   [&](Index b, Index s) { return s >= used[static_cast<std::size_t>(b)]; });
  }
}

// F040
TEST_P(NanInfLeak, KeysOutsideTheWindowsOfATileOfRowsDoNotShow) {
  // Rows 128 .. 191 see keys 118 .. 191 only; earlier and later rows see nothing.
  const Mask mask = expect_value(Mask::parse("(q >= k) & (q - k <= 10) & (q >= 128) & (q < 192)"));
  for (const Index head_dim : {64, 128, 192, 256}) {
    SCOPED_TRACE(head_dim);
    expect_no_leak({.shape = shape_of(1, 2, 2, 300, 300, head_dim), .mask = mask},
                   [](Index, Index s) { return s < 118 || s >= 192; });
  }
}

// F040
TEST_P(NanInfLeak, KeysOfABlockThatAPredicateHidesDoNotShow) {
  const AttentionShape shape = shape_of(1, 1, 1, 192, 192, 64);
  Integers counts = {2, 2, 2};
  Integers indices = {0, 1, 0, 1, 0, 1};
  const Mask predicate = expect_value(Mask::parse("(k % 3 != 1) & (k < 100)"));
  const Mask mask = expect_value(
      Mask::block_list(shape, view_of(counts, {1, 1, 3}), view_of(indices, {1, 1, 3, 2}), 64, 64, &predicate));
  expect_no_leak({.shape = shape, .mask = mask}, [](Index, Index s) { return s % 3 == 1 || s >= 100; });
}

// F041
TEST_P(NanInfLeak, ANanQueryMakesItsOwnRowNan) {
  Scenario scenario{.shape = shape_of(2, 4, 4, 16, 16, 16), .backward = false};
  Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer clean = run(scenario, inputs);
  std::fill_n(inputs.query.row(0, 0, 3), 16, std::nan(""));
  const oracle::Answer answer = run(scenario, inputs);
  for_each_row(answer.out, [&](Index b, Index h, Index q) {
    const bool poisoned = b == 0 && h == 0 && q == 3;
    EXPECT_EQ(std::isnan(answer.lse.at(b, h, q)), poisoned);
    for (Index d = 0; d < 16; ++d) {
      const double expected = poisoned ? std::nan("") : clean.out.at(b, h, q, d);
      EXPECT_TRUE(answer.out.at(b, h, q, d) == expected || (poisoned && std::isnan(answer.out.at(b, h, q, d))));
    }
  });
}

// F041
TEST_P(NanInfLeak, AVisibleNanKeyMakesExactlyTheRowsThatSeeItNan) {
  Scenario scenario{
      .shape = shape_of(1, 2, 1, 200, 200, 64), .mask = expect_value(Mask::window(20, 0)), .backward = false};
  Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer clean = run(scenario, inputs);
  inputs.key.at(0, 0, 90, 7) = std::nan("");
  const oracle::Answer answer = run(scenario, inputs);
  for (Index h = 0; h < 2; ++h) {
    for (Index q = 0; q < 200; ++q) {
      const bool poisoned = q >= 90 && q <= 110;
      EXPECT_EQ(std::isnan(answer.lse.at(0, h, q)), poisoned) << q;
      EXPECT_EQ(std::isnan(answer.out.at(0, h, q, 5)), poisoned) << q;
      if (!poisoned) {
        EXPECT_EQ(answer.out.at(0, h, q, 5), clean.out.at(0, h, q, 5)) << q;
      }
    }
  }
}

// F041: rows 90 to 110 see the key; they see keys 70 to 110.
TEST_P(NanInfLeak, AVisibleNanKeyReachesTheGradientsOfTheRowsThatSeeItAndOfTheirKeysOnly) {
  for (const Index head_dim : {64, 128, 192, 256}) {
    SCOPED_TRACE(head_dim);
    Scenario scenario{.shape = shape_of(1, 1, 1, 200, 200, head_dim), .mask = expect_value(Mask::window(20, 0))};
    Inputs inputs = random_inputs(scenario.shape);
    const oracle::Answer clean = run(scenario, inputs);
    std::fill_n(inputs.key.row(0, 0, 90), head_dim, std::nan(""));
    const oracle::Answer answer = run(scenario, inputs);
    for (Index s = 0; s < 200; ++s) {
      for (const Index d : {Index{5}, head_dim - 3}) {  // of different panels of columns
        if (s >= 90 && s <= 110) {
          EXPECT_TRUE(std::isnan(answer.query_gradient.at(0, 0, s, d))) << s;
        } else {
          EXPECT_EQ(answer.query_gradient.at(0, 0, s, d), clean.query_gradient.at(0, 0, s, d)) << s;
        }
        if (s >= 70 && s <= 110) continue;
        EXPECT_EQ(answer.key_gradient.at(0, 0, s, d), clean.key_gradient.at(0, 0, s, d)) << s;
        EXPECT_EQ(answer.value_gradient.at(0, 0, s, d), clean.value_gradient.at(0, 0, s, d)) << s;
      }
    }
  }
}

// The keys from 128 on are a tile with a tail, which queries from 128 on see whole, and earlier ones in part.
TEST_P(NanInfLeak, AVisibleInfiniteOutGradientReachesItsColumnOfTheValuesOfAllKeysThatItsRowSees) {
  for (const auto& [head_dim, row] : {std::pair<Index, Index>{64, 150}, {64, 60}, {256, 150}, {256, 60}}) {
    SCOPED_TRACE(std::to_string(head_dim) + ", row " + std::to_string(row));
    Scenario scenario{.shape = shape_of(1, 1, 1, 256, 200, head_dim),
                      .mask = expect_value(Mask::parse("(q >= 100) | (k < 140)"))};
    const Inputs inputs = random_inputs(scenario.shape);
    const oracle::Answer clean = run(scenario, inputs);
    Inputs spoilt = inputs;
    spoilt.out_gradient.at(0, 0, row, 3) = infinity;
    const oracle::Answer answer = run(scenario, spoilt);
    for (Index k = 0; k < 200; ++k) {
      const bool seen = row >= 100 || k < 140;
      EXPECT_EQ(std::isinf(answer.value_gradient.at(0, 0, k, 3)), seen) << k;
      EXPECT_EQ(answer.value_gradient.at(0, 0, k, 4), clean.value_gradient.at(0, 0, k, 4)) << k;
      EXPECT_EQ(std::isfinite(answer.key_gradient.at(0, 0, k, 4)), !seen) << k;
    }
    EXPECT_FALSE(std::isfinite(answer.query_gradient.at(0, 0, row, 4)));
  }
}

TEST_P(NanInfLeak, AVisibleNanValueReachesTheColumnItStandsIn) {
  Scenario scenario{.shape = shape_of(1, 1, 1, 70, 70, 64), .mask = Mask::causal(), .backward = false};
  Inputs inputs = random_inputs(scenario.shape);
  inputs.value.at(0, 0, 40, 7) = std::nan("");
  const oracle::Answer answer = run(scenario, inputs);
  for (Index q = 0; q < 70; ++q) {
    EXPECT_EQ(std::isnan(answer.out.at(0, 0, q, 7)), q >= 40) << q;
    EXPECT_FALSE(std::isnan(answer.out.at(0, 0, q, 8))) << q;
    EXPECT_FALSE(std::isnan(answer.lse.at(0, 0, q))) << q;
  }
}

}  // namespace
}  // namespace flashspan::tests
