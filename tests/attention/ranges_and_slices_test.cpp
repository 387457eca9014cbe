// ranges_and_slices_test.cpp -- key ranges per query, dense and CSR, and slices, in both directions.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class RangesAndSlices : public AttentionTest {};
FLASHSPAN_ON_EVERY_PLACE(RangesAndSlices);

TEST_P(RangesAndSlices, ARowSeesTheUnionOfItsRanges) {
  const AttentionShape shape = shape_of(2, 4, 2, 129, 200, 64);
  constexpr Index count = 3;
  for (const auto& [batch, heads] : {std::pair<Index, Index>{1, 1}, {2, 2}, {1, 4}}) {
    Integers ranges(static_cast<std::size_t>(batch * heads * 129 * count * 2));
    oracle::RandomNumbers numbers(static_cast<std::uint64_t>(heads));
    for (std::size_t i = 0; i < ranges.size(); i += 2) {
      ranges[i] = static_cast<std::int32_t>(numbers.integer(0, 200));
      ranges[i + 1] = static_cast<std::int32_t>(std::min<Index>(200, ranges[i] + numbers.integer(-5, 40)));
    }
    DenseMask dense(2, 4, 129, 200);
    for_each_row(oracle::Tensor(2, 4, 129, count), [&](Index b, Index h, Index q) {
      const Index list = (b % batch) * heads + h / (4 / heads);
      for (Index r = 0; r < count; ++r) {
        const auto at = static_cast<std::size_t>(((list * 129 + q) * count + r) * 2);
        for (Index k = ranges[at]; k < ranges[at + 1]; ++k) dense.at(b, h, q, k) = 1;
      }
    });
    expect_passes({.shape = shape,
                   .mask = expect_value(Mask::key_ranges(shape, view_of(ranges, {batch, heads, 129, count, 2}))),
                   .visible = dense});
  }
}

TEST_P(RangesAndSlices, TheCsrFormGivesEveryRowItsOwnNumberOfRanges) {
  const AttentionShape shape = shape_of(2, 2, 1, 100, 150, 64);
  Integers offsets, ranges;
  DenseMask dense(2, 2, 100, 150);
  oracle::RandomNumbers numbers(3);
  const auto ranges_so_far = [&] { return static_cast<std::int32_t>(ranges.size() / 2); };
  for_each_row(oracle::Tensor(2, 2, 100, 1), [&](Index b, Index h, Index q) {
    if (q == 0) offsets.push_back(ranges_so_far());
    for (Index r = numbers.integer(0, 4); r > 0; --r) {
      const Index low = numbers.integer(0, 150);
      const Index high = std::min<Index>(150, low + numbers.integer(0, 30));
      ranges.push_back(static_cast<std::int32_t>(low));
      ranges.push_back(static_cast<std::int32_t>(high));
      for (Index k = low; k < high; ++k) dense.at(b, h, q, k) = 1;
    }
    offsets.push_back(ranges_so_far());
  });
  const auto count = static_cast<Index>(ranges.size() / 2);
  expect_passes(
      {.shape = shape,
       .mask = expect_value(Mask::key_ranges_csr(shape, view_of(offsets, {2, 2, 101}), view_of(ranges, {count, 2}))),
       .visible = dense});
}

// F060
TEST_P(RangesAndSlices, OverlappingAndEmptySlicesMakeTheirUnionInAnyOrder) {
  const AttentionShape shape = shape_of(1, 2, 2, 150, 201, 64);
  const auto visible = [](Index, Index, Index q, Index k) {
    return (q < 100 && k < 64) || (q >= 50 && k >= 64 && k < 200 && (k - 64) - (q - 50) <= 136 - 100) || k == 200;
  };
  Integers queries = {0, 100, 50, 150, 0, 150, 70, 70};
  Integers keys = {0, 64, 64, 200, 200, 201, 10, 20};
  Integers types = {0, 1, 0, 0};
  const Inputs inputs = random_inputs(shape);
  const Mask mask =
      expect_value(Mask::slices(shape, view_of(queries, {4, 2}), view_of(keys, {4, 2}), view_of(types, {4})));
  const oracle::Answer forwards = expect_passes({.shape = shape, .mask = mask, .visible = visible}, inputs);
  Integers queries_backwards = {70, 70, 0, 150, 50, 150, 0, 100};
  Integers keys_backwards = {10, 20, 200, 201, 64, 200, 0, 64};
  Integers types_backwards = {0, 0, 1, 0};
  const Mask backwards = expect_value(Mask::slices(shape, view_of(queries_backwards, {4, 2}),
                                                   view_of(keys_backwards, {4, 2}), view_of(types_backwards, {4})));
  EXPECT_TRUE(same_bits_but_for_sums(run({.shape = shape, .mask = backwards}, inputs), forwards));
}

TEST_P(RangesAndSlices, EverySliceTypeOnARectangle) {
  const AttentionShape shape = shape_of(1, 1, 1, 140, 150, 64);
  Integers queries = {3, 133};
  Integers keys = {7, 147};
  const auto kept = [](int type, Index i, Index j) {
    const bool causal = j - i <= 140 - 130;
    const bool inverse = j >= i;
    return type == 0 || (type == 1 && causal) || (type == 2 && inverse) || (type == 3 && causal && inverse);
  };
  for (int type = 0; type < 4; ++type) {
    SCOPED_TRACE(type);
    Integers types = {type};
    expect_passes({.shape = shape,
                   .mask = expect_value(
                       Mask::slices(shape, view_of(queries, {1, 2}), view_of(keys, {1, 2}), view_of(types, {1}))),
                   .visible = [=](Index, Index, Index q, Index k) {
                     return q >= 3 && q < 133 && k >= 7 && k < 147 && kept(type, q - 3, k - 7);
                   }});
  }
}

}  // namespace
}  // namespace flashspan::tests
