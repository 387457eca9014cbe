// lowerings_test.cpp -- however a mask is applied, the result is the same.
#include <gtest/gtest.h>

#include <cstdlib>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

constexpr LoweringKind every_kind[] = {LoweringKind::none,      LoweringKind::row_ranges, LoweringKind::column_bounds,
                                       LoweringKind::bit_tiles, LoweringKind::expression, LoweringKind::interpreted};

class Lowerings : public AttentionTest {
 protected:
  static constexpr Index length = 150;

  /// Runs the mask under every lowering that it can have, which are `count`.
  void expect_lowerings(const Mask& mask, const oracle::Visible& visible, int count) {
    int legal = 0;
    for (const LoweringKind kind : every_kind) {
      const auto lowered = mask.with_lowering(Direction::forward, kind);
      if (!lowered) {
        EXPECT_EQ(lowered.error().code, ErrorCode::unsupported);
        continue;
      }
      ++legal;
      SCOPED_TRACE(to_string(kind));
      expect_passes({.shape = shape_of(1, 2, 1, length, length, 64), .mask = *lowered, .visible = visible});
    }
    EXPECT_EQ(legal, count) << mask.text();
  }
};
FLASHSPAN_ON_EVERY_PLACE(Lowerings);

TEST_P(Lowerings, OfPositionalMasksAgree) {
  expect_lowerings(Mask::full(), {}, 6);
  expect_lowerings(Mask::causal(), [](Index, Index, Index q, Index k) { return k <= q; }, 5);
  expect_lowerings(
      expect_value(Mask::parse("sink_window(left=31, sinks=5)")),
      [](Index, Index, Index q, Index k) { return k <= q && (q - k <= 31 || k < 5); }, 5);
  expect_lowerings(
      expect_value(Mask::parse("chunked(size=48)")),
      [](Index, Index, Index q, Index k) { return k <= q && q / 48 == k / 48; }, 5);
}

TEST_P(Lowerings, OfMasksWithDataAgree) {
  Integers document = document_ids({70, 1, 79}), start(length), end(length);
  for (std::size_t i = 0; i < length; ++i) {
    start[i] = i < 70 ? 0 : i < 71 ? 70 : 71;
    end[i] = i < 70 ? 70 : i < 71 ? 71 : static_cast<std::int32_t>(length);
  }
  const auto same = [document](Index, Index, Index q, Index k) {
    return document[static_cast<std::size_t>(q)] == document[static_cast<std::size_t>(k)];
  };
  expect_lowerings(expect_value(Mask::parse("document", {{"doc", view_of(document, {length})}})), same, 3);
  const std::vector<NamedTensor> ends{{"start", view_of(start, {length})}, {"end", view_of(end, {length})}};
  expect_lowerings(expect_value(Mask::parse("start[q] <= k < end[q]", ends)), same, 4);
  expect_lowerings(expect_value(Mask::parse("start[k] <= q < end[k]", ends)), same, 4);
  Integers width{9, 100};
  expect_lowerings(
      expect_value(Mask::parse("abs(q - k) < w[h]", {{"w", view_of(width, {2})}})),
      [width](Index, Index h, Index q, Index k) { return std::abs(q - k) < width[static_cast<std::size_t>(h)]; }, 4);
}

}  // namespace
}  // namespace flashspan::tests
