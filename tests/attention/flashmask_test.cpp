// flashmask_test.cpp -- FlashMask column intervals in both directions (arXiv 2410.01359, section 4).
#include <gtest/gtest.h>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class FlashMask : public AttentionTest {
 protected:
  /// Random intervals, [batch, heads, kv_len, n]; empty and inverted ones among them.
  static Integers random_bounds(const AttentionShape& shape, Index heads, Index n, std::uint64_t seed) {
    return random_integers(static_cast<std::size_t>(shape.batch * heads * shape.kv_len * n), 0, shape.q_len + 1, seed);
  }

  /// Runs `n` bounds a column, shared by query_heads / heads query heads.
  void expect_intervals(const AttentionShape& shape, Index heads, Index n, bool causal) {
    Integers bounds = random_bounds(shape, heads, n, static_cast<std::uint64_t>(heads * 10 + n));
    const Mask mask =
        expect_value(Mask::flashmask(shape, view_of(bounds, {shape.batch, heads, shape.kv_len, n}), causal));
    const oracle::Visible visible = [=](Index b, Index h, Index q, Index k) {
      const Index mask_head = h / (shape.query_heads / heads);
      const auto column = static_cast<std::size_t>(((b * heads + mask_head) * shape.kv_len + k) * n);
      const auto inside = [&](Index low, Index high) { return low <= q && q < high; };
      if (causal && k > q + shape.kv_len - shape.q_len) return false;
      if (n == 4) {
        return !inside(bounds[column], bounds[column + 1]) && !inside(bounds[column + 2], bounds[column + 3]);
      }
      if (n == 2 && causal) return !inside(bounds[column], bounds[column + 1]);
      if (n == 2) return !inside(bounds[column], shape.q_len) && !inside(0, bounds[column + 1]);
      return !inside(bounds[column], shape.q_len);
    };
    expect_passes({.shape = shape, .mask = mask, .visible = visible, .lse_gradient = true});
  }
};
FLASHSPAN_ON_EVERY_PLACE(FlashMask);

TEST_P(FlashMask, OneBoundIsAStartBelowTheDiagonal) {
  expect_intervals(shape_of(2, 4, 2, 200, 200, 64), 1, 1, true);
  expect_intervals(shape_of(2, 4, 2, 130, 200, 64), 2, 1, true);
}

TEST_P(FlashMask, TwoBoundsAreAnIntervalIfCausalAndTwoSidesIfNot) {
  expect_intervals(shape_of(2, 4, 2, 200, 200, 64), 2, 2, true);
  expect_intervals(shape_of(2, 4, 2, 200, 130, 64), 4, 2, false);
}

TEST_P(FlashMask, FourBoundsAreTwoIntervals) { expect_intervals(shape_of(2, 4, 2, 200, 200, 64), 4, 4, false); }

// F061
TEST_P(FlashMask, AStartAtTheDocumentsEndIsACausalDocumentMask) {
  const AttentionShape shape = shape_of(1, 1, 1, 8, 8, 16);
  Integers starts = {4, 4, 4, 4, 8, 8, 8, 8};
  expect_passes({.shape = shape,
                 .mask = expect_value(Mask::flashmask(shape, view_of(starts, {1, 1, 8, 1}), true)),
                 .visible = [](Index, Index, Index q, Index k) { return k <= q && q / 4 == k / 4; }});
}

}  // namespace
}  // namespace flashspan::tests
