// split_rows_test.cpp -- few queries, many keys: on a GPU, several blocks share the keys of a row and put it together.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class SplitRows : public AttentionTest {};
FLASHSPAN_ON_EVERY_PLACE(SplitRows);

bool causal(Index q_len, Index kv_len, Index q, Index k) { return q + kv_len - q_len >= k; }

TEST_P(SplitRows, FewQueriesOverManyKeysWithoutAMask) {
  for (const Index q_len : {1, 15, 17, 64, 65, 128, 130}) {
    SCOPED_TRACE(q_len);
    expect_passes({.shape = shape_of(1, 4, 2, q_len, 5003, 64), .backward = false});
  }
  expect_passes({.shape = shape_of(2, 8, 1, 3, 5000, 128), .backward = false});
  expect_passes({.shape = shape_of(1, 2, 1, 5, 3000, 192, 128), .backward = false});
  expect_passes({.shape = shape_of(1, 2, 1, 5, 3000, 256), .backward = false});
}

TEST_P(SplitRows, FewQueriesAtTheEndOfManyKeysUnderACausalMask) {
  for (const Index q_len : {1, 63, 130}) {
    SCOPED_TRACE(q_len);
    const Scenario scenario{.shape = shape_of(1, 4, 2, q_len, 5000, 128),
                            .mask = Mask::causal(),
                            .visible = [q_len](Index, Index, Index q, Index k) { return causal(q_len, 5000, q, k); },
                            .backward = false};
    expect_passes(scenario);
  }
}

TEST_P(SplitRows, RowsOfVeryDifferentLengthsAndEmptyRows) {
  // Per head: everything, one key of the last tile, nothing, every third query a window of its own.
  const auto visible = [](Index, Index h, Index q, Index k) {
    return h == 0 ? true : h == 1 ? k == 4999 : h == 2 ? false : q % 3 != 0 && k >= 20 * q && k < 20 * q + 700;
  };
  const Mask mask =
      expect_value(Mask::parse("where(h == 0, True, where(h == 1, k == 4999, where(h == 2, False, "
                               "(q % 3 != 0) & (k >= 20 * q) & (k < 20 * q + 700))))"));
  expect_passes({.shape = shape_of(1, 4, 4, 200, 5000, 64), .mask = mask, .visible = visible, .backward = false});
}

TEST_P(SplitRows, AScoreChangesPortionsAsItChangesRows) {
  const oracle::ScoreFunction function{
      [](double score, Index, Index, Index q, Index k) { return 0.5 * score - 0.001 * static_cast<double>(k - q); },
      [](double, Index, Index, Index, Index) { return 0.5; }};
  expect_passes({.shape = shape_of(1, 2, 1, 33, 4000, 64),
                 .mask = Mask::causal(),
                 .visible = [](Index, Index, Index q, Index k) { return causal(33, 4000, q, k); },
                 .score = expect_value(Score::parse("0.5 * score - 0.001 * (k - q)")),
                 .score_function = function,
                 .backward = false});
}

TEST_P(SplitRows, TheSameCallGivesTheSameBits) {
  const Scenario scenario{.shape = shape_of(1, 4, 2, 70, 6000, 128),
                          .mask = Mask::causal(),
                          .visible = [](Index, Index, Index q, Index k) { return causal(70, 6000, q, k); },
                          .backward = false};
  const Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer first = run(scenario, inputs);
  for (int again = 0; again < 5; ++again) EXPECT_TRUE(same_bits_but_for_sums(run(scenario, inputs), first));
}

TEST_P(SplitRows, OneWorkspaceServesCallAfterCall) {
  const Scenario scenario{.shape = shape_of(1, 2, 1, 20, 5000, 64), .backward = false};
  const Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer expected = run(scenario, inputs);
  const PlacedCall placed(scenario, inputs, device(), dtype());
  ForwardCall call = placed.forward_call();
  const PoisonedWorkspace workspace(device(), expect_value(attention().workspace_bytes(call)));
  call.workspace = workspace.data();
  call.workspace_bytes = workspace.bytes();
  for (int again = 0; again < 3; ++again) {
    expect_value(attention().forward(call));
    expect_value(synchronize(device(), call.stream));
    EXPECT_TRUE(same_bits_but_for_sums(placed.read(), expected)) << again;
  }
}

TEST_P(SplitRows, HiddenNanAndInfinityHaveNoInfluenceAndVisibleOnesReachTheirRows) {
  // A band that leaves keys out everywhere, so that all its tiles are partial.
  const auto visible = [](Index, Index, Index q, Index k) { return k % 97 != 5 && k <= 40 * q + 1000; };
  const Scenario scenario{.shape = shape_of(1, 2, 1, 100, 5000, 64),
                          .mask = expect_value(Mask::parse("(k % 97 != 5) & (k <= 40 * q + 1000)")),
                          .visible = visible,
                          .backward = false};
  Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer clean = run(scenario, inputs);
  for (Index k = 5; k < 5000; k += 97) {
    std::fill_n(inputs.value.row(0, 0, k), 64, k % 2 == 0 ? std::nan("") : HUGE_VAL);
    std::fill_n(inputs.key.row(0, 0, k), 64, std::nan(""));
  }
  EXPECT_TRUE(same_bits_but_for_sums(run(scenario, inputs), clean));
  // Seen by the rows from 50 on, in the middle of their portions.
  inputs.value.at(0, 0, 3000, 7) = std::nan("");
  const oracle::Answer answer = run(scenario, inputs);
  for (Index q = 0; q < 100; ++q) {
    EXPECT_EQ(std::isnan(answer.out.at(0, 1, q, 7)), q >= 50) << q;
    EXPECT_EQ(answer.out.at(0, 1, q, 8), clean.out.at(0, 1, q, 8)) << q;
    EXPECT_EQ(answer.lse.at(0, 1, q), clean.lse.at(0, 1, q)) << q;
  }
}

}  // namespace
}  // namespace flashspan::tests
