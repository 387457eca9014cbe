// growing_logits_test.cpp -- a softmax that goes through its keys in order must bear logits that only later keys show.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "attention/attention_fixture.hpp"

namespace flashspan::tests {
namespace {

using Logit = std::function<double(Index k)>;

class GrowingLogits : public AttentionTest {
 protected:
  /// Random inputs but for one column, which adds slope(q) * logit(k) to the logit of query q and key k.
  Inputs inputs_with(const Scenario& scenario, const std::function<double(Index q)>& slope, const Logit& logit) const {
    Inputs inputs = random_inputs(scenario.shape, 1, 0.25);
    for_each_row(inputs.query, [&](Index b, Index h, Index q) { inputs.query.at(b, h, q, 0) = slope(q); });
    for_each_row(inputs.key, [&](Index b, Index h, Index k) { inputs.key.at(b, h, k, 0) = logit(k); });
    return inputs;
  }

  /// Whole rows without a mask, with one that is known from ranges, and with one that is not; and rows that are cut.
  static std::vector<Scenario> scenarios() {
    const Mask striped = expect_value(Mask::parse("(q >= k) & ((q + k) % 7 != 0)"));
    const auto causal = [](Index, Index, Index q, Index k) { return q >= k; };
    const auto striped_too = [](Index, Index, Index q, Index k) { return q >= k && (q + k) % 7 != 0; };
    const AttentionShape whole = shape_of(1, 2, 1, 700, 700, 64);
    const AttentionShape wide = shape_of(1, 1, 1, 300, 700, 128);
    return {{.shape = whole, .scale = 1.F, .backward = false},
            {.shape = wide, .scale = 1.F, .backward = false},
            {.shape = whole, .mask = Mask::causal(), .visible = causal, .scale = 1.F, .backward = false},
            {.shape = whole, .mask = striped, .visible = striped_too, .scale = 1.F, .backward = false},
            {.shape = shape_of(1, 2, 1, 40, 2500, 64), .scale = 1.F, .backward = false}};
  }
};
FLASHSPAN_ON_EVERY_PLACE(GrowingLogits);

// Every tile of 128 keys adds 16 to the largest logit: a factor of 2^23.
TEST_P(GrowingLogits, LogitsThatGrowFromTileToTileKeepTheirWeights) {
  for (const Scenario& scenario : scenarios()) {
    expect_passes(scenario, inputs_with(
                                scenario, [](Index q) { return q % 3 == 0   ? 1.0
                                                               : q % 3 == 1 ? 0.0
                                                                            : -1.0; },
                                [](Index k) { return static_cast<double>(k / 16) * 2; }));
  }
}

// e^300 is past the range of binary32; e^87.5, twice, is in the last binade of it.
TEST_P(GrowingLogits, ALogitOutOfRangeOfAllBeforeItTakesTheWeight) {
  for (const double jump : {80.0, 87.5, 300.0, 20480.0}) {
    SCOPED_TRACE(jump);
    for (const Scenario& scenario : scenarios()) {
      expect_passes(scenario, inputs_with(
                                  scenario, [](Index q) { return q % 2 == 0 ? 1.0 : 0.0; },
                                  [&](Index k) { return k == 333 || k == 650 ? jump : 0.0; }));
    }
  }
}

TEST_P(GrowingLogits, RowsBesideARowWhoseLogitsAreOutOfRangeAreBitForBitAsWithoutIt) {
  for (const Scenario& scenario : scenarios()) {
    const Logit jumps = [](Index k) { return k == 333 ? 300.0 : 0.0; };
    const auto even = [](Index q) { return q % 2 == 0 ? 1.0 : 0.0; };
    const oracle::Answer with = run(scenario, inputs_with(scenario, even, jumps));
    const oracle::Answer without = run(scenario, inputs_with(scenario, [](Index) { return 0.0; }, jumps));
    for_each_row(with.out, [&](Index b, Index h, Index q) {
      if (q % 2 == 0) return;
      EXPECT_EQ(with.lse.at(b, h, q), without.lse.at(b, h, q)) << "query " << q;
      for (Index d = 0; d < with.out.columns; ++d) {
        EXPECT_EQ(with.out.at(b, h, q, d), without.out.at(b, h, q, d)) << "query " << q;
      }
    });
  }
}

TEST_P(GrowingLogits, AHiddenNanAndALogitOutOfRangeInOneTileOfRowsAreBothBorne) {
  Scenario scenario{.shape = shape_of(1, 1, 1, 500, 500, 64),
                    .mask = Mask::causal(),
                    .visible = [](Index, Index, Index q, Index k) { return q >= k; },
                    .scale = 1.F,
                    .backward = false};
  Inputs inputs = inputs_with(
      scenario, [](Index q) { return q % 2 == 0 ? 1.0 : 0.0; }, [](Index k) { return k == 200 ? 300.0 : 0.0; });
  const oracle::Answer clean = expect_passes(scenario, inputs);
  std::fill_n(inputs.value.row(0, 0, 499), 64, std::numeric_limits<double>::quiet_NaN());
  const oracle::Answer answer = run(scenario, inputs);
  for (Index q = 0; q < 499; ++q) {
    EXPECT_EQ(answer.lse.at(0, 0, q), clean.lse.at(0, 0, q)) << "query " << q;
    for (Index d = 0; d < 64; ++d) EXPECT_EQ(answer.out.at(0, 0, q, d), clean.out.at(0, 0, q, d)) << "query " << q;
  }
}

}  // namespace
}  // namespace flashspan::tests
