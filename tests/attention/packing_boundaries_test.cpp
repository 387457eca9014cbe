// packing_boundaries_test.cpp -- documents packed into one sequence: four ways to say it, and no influence across.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

// F049: documents of 100, 56 and 100 tokens, boundaries inside tiles.
class PackingBoundaries : public AttentionTest {
 protected:
  static constexpr Index length = 256;
  AttentionShape shape_ = shape_of(1, 2, 1, length, length, 64);
  Integers documents_ = document_ids({100, 56, 100});

  static Index begin_of(Index token) { return token < 100 ? 0 : token < 156 ? 100 : 156; }
  static Index end_of(Index token) { return token < 100 ? 100 : token < 156 ? 156 : 256; }
  static bool visible(Index, Index, Index q, Index k) { return begin_of(q) == begin_of(k); }
};
FLASHSPAN_ON_EVERY_PLACE(PackingBoundaries);

TEST_P(PackingBoundaries, FlashMaskBlocksIdsAndRangesAreOneMask) {
  Integers bounds, ranges;
  for (Index token = 0; token < length; ++token) {
    const std::int32_t begin = static_cast<std::int32_t>(begin_of(token));
    const std::int32_t end = static_cast<std::int32_t>(end_of(token));
    bounds.insert(bounds.end(), {end, begin});
    ranges.insert(ranges.end(), {begin, end});
  }
  Integers counts = {2, 3, 3, 2};
  Integers indices = {0, 1, -1, -1, 0, 1, 2, -1, 1, 2, 3, -1, 2, 3, -1, -1};
  const Mask by_id = expect_value(Mask::parse("document", {{"doc", view_of(documents_, {length})}}));
  const Mask ways[] = {by_id, expect_value(Mask::flashmask(shape_, view_of(bounds, {1, 1, length, 2}), false)),
                       expect_value(Mask::key_ranges(shape_, view_of(ranges, {1, 1, length, 1, 2}))),
                       expect_value(Mask::block_list(shape_, view_of(counts, {1, 1, 4}), view_of(indices, {1, 1, 4, 4}),
                                                     64, 64, &by_id))};
  const Inputs inputs = random_inputs(shape_);
  for (const Mask& mask : ways) {
    SCOPED_TRACE(mask.text());
    expect_passes({.shape = shape_, .mask = mask, .visible = visible, .lse_gradient = true}, inputs);
  }
}

TEST_P(PackingBoundaries, WhatStandsInOneDocumentDoesNotTouchTheOthers) {
  const Scenario scenario{.shape = shape_,
                          .mask = expect_value(Mask::parse("document", {{"doc", view_of(documents_, {length})}}))};
  const Inputs inputs = random_inputs(shape_);
  const oracle::Answer expected = run(scenario, inputs);
  for (const double content : {0.7, std::nan("")}) {
    SCOPED_TRACE(content);
    Inputs other = inputs;
    std::fill_n(other.key.row(0, 0, 0), 100 * 64, oracle::round_to(format(), static_cast<float>(content)));
    std::fill_n(other.value.row(0, 0, 0), 100 * 64, oracle::round_to(format(), static_cast<float>(content)));
    const oracle::Answer answer = run(scenario, other);
    const auto same_behind = [](const oracle::Tensor& left, const oracle::Tensor& right) {
      return same_bits("rows of later documents", rows_of(left, 100, length - 100), rows_of(right, 100, length - 100));
    };
    EXPECT_TRUE(same_behind(answer.out, expected.out));
    EXPECT_TRUE(same_behind(answer.lse, expected.lse));
    EXPECT_TRUE(same_behind(answer.query_gradient, expected.query_gradient));
    EXPECT_TRUE(same_behind(answer.key_gradient, expected.key_gradient));
    EXPECT_TRUE(same_behind(answer.value_gradient, expected.value_gradient));
  }
}

}  // namespace
}  // namespace flashspan::tests
