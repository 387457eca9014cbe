// window_alignment_test.cpp -- which keys a window or a causal mask shows, counted by one-hot values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "attention/attention_fixture.hpp"

namespace flashspan::tests {
namespace {

class WindowAlignment : public AttentionTest {
 protected:
  /// With q = 0 every visible key weighs 1 / count, so out of one-hot values shows which keys are visible.
  void expect_visible(const Mask& mask, Index q_len, Index kv_len, const oracle::Visible& visible) {
    SCOPED_TRACE(mask.text());
    const Index head_dim_v = (kv_len + 7) / 8 * 8;
    Scenario scenario{.shape = shape_of(1, 1, 1, q_len, kv_len, 16, std::max<Index>(16, head_dim_v)),
                      .mask = mask,
                      .backward = false};
    Inputs inputs = random_inputs(scenario.shape);
    inputs.query = oracle::Tensor(1, 1, q_len, 16);
    inputs.value = oracle::Tensor(1, 1, kv_len, scenario.shape.head_dim_v);
    for (Index k = 0; k < kv_len; ++k) inputs.value.at(0, 0, k, k) = 1;
    const oracle::Answer answer = run(scenario, inputs);
    for (Index q = 0; q < q_len; ++q) {
      Index count = 0;
      for (Index k = 0; k < kv_len; ++k) {
        EXPECT_EQ(answer.out.at(0, 0, q, k) > 0, visible(0, 0, q, k)) << "query " << q << ", key " << k;
        count += visible(0, 0, q, k) ? 1 : 0;
      }
      if (count > 0) {
        EXPECT_NEAR(answer.lse.at(0, 0, q), std::log(static_cast<double>(count)), 1e-5) << q;
      }
    }
  }
  static Mask window(std::optional<std::int64_t> left, std::optional<std::int64_t> right) {
    return expect_value(Mask::window(left, right));
  }
};
FLASHSPAN_ON_EVERY_PLACE(WindowAlignment);

// F045
TEST_P(WindowAlignment, BoundsAreInclusiveOnBothSides) {
  const auto within = [](Index left) {
    return [left](Index, Index, Index q, Index k) { return k <= q && q - k <= left; };
  };
  expect_visible(window(3, 0), 8, 8, within(3));
  expect_visible(window(4, 0), 8, 8, within(4));
  expect_visible(window(64, 0), 200, 200, within(64));
}

// F045
TEST_P(WindowAlignment, RowIOfALongWindowSeesAtMostLeftPlusOneKeys) {
  Scenario scenario{.shape = shape_of(1, 1, 1, 2048, 2048, 16), .mask = window(1024, 0), .backward = false};
  Inputs inputs = random_inputs(scenario.shape);
  inputs.query = oracle::Tensor(1, 1, 2048, 16);
  const oracle::Answer answer = run(scenario, inputs);
  for (Index q = 0; q < 2048; ++q) {
    ASSERT_NEAR(answer.lse.at(0, 0, q), std::log(static_cast<double>(std::min<Index>(q, 1024) + 1)), 1e-4) << q;
  }
}

// F047
TEST_P(WindowAlignment, TheWidestWindowShowsEverything) {
  constexpr std::int64_t widest = std::numeric_limits<std::int32_t>::max();
  expect_visible(window(widest, widest), 10, 4, [](Index, Index, Index, Index) { return true; });
  expect_visible(window(std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::max()), 10, 4,
                 [](Index, Index, Index, Index) { return true; });
}

// F048
TEST_P(WindowAlignment, ZeroBoundsAndMissingBounds) {
  expect_visible(window(0, 0), 16, 16, [](Index, Index, Index q, Index k) { return q == k; });
  expect_visible(window({}, 0), 16, 16, [](Index, Index, Index q, Index k) { return k <= q; });
  expect_visible(window(0, {}), 16, 16, [](Index, Index, Index q, Index k) { return k >= q; });
  EXPECT_FALSE(Mask::window(-3, 0));
}

TEST_P(WindowAlignment, TheLastQueryStandsBesideTheLastKeyUnlessToldOtherwise) {
  expect_visible(Mask::causal(), 5, 9, [](Index, Index, Index q, Index k) { return k <= q + 4; });
  expect_visible(Mask::causal(), 9, 5, [](Index, Index, Index q, Index k) { return k <= q - 4; });
  expect_visible(Mask::causal(/*top_left=*/true), 5, 9, [](Index, Index, Index q, Index k) { return k <= q; });
  expect_visible(window(1, 2), 5, 9, [](Index, Index, Index q, Index k) { return k >= q + 3 && k <= q + 6; });
}

}  // namespace
}  // namespace flashspan::tests
