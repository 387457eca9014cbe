// Block lists against loops over the listed blocks.
#include <algorithm>

#include "tests/mask_inputs/dense_mask.hpp"

namespace flashspan::testing {
namespace {

bool listed(IntTensor& counts, IntTensor& indices, std::int64_t b, std::int64_t h, std::int64_t row,
            std::int64_t block) {
  for (std::int64_t entry = 0; entry < counts.at({b, h, row}); ++entry) {
    if (indices.at({b, h, row, entry}) == block) return true;
  }
  return false;
}

/// Turns every entry that an earlier one of its row equals into padding.
void remove_repeats(IntTensor& indices) {
  const auto length = indices.shape.back();
  for (auto row = indices.values.begin(); row != indices.values.end(); row += length) {
    for (auto entry = row; entry != row + length; ++entry) {
      if (std::find(row, entry, *entry) != entry) *entry = -1;
    }
  }
}

TEST(BlockList, APairIsVisibleIfItsBlockIsListed) {
  unsigned seed = 1;
  for (const auto& [block_q, block_k] : {std::pair<std::int64_t, std::int64_t>{4, 4}, {3, 8}, {16, 5}}) {
    const AttentionShape shape = sizes(2, 4, 2, 18, 27);
    const std::int64_t rows = (18 + block_q - 1) / block_q;
    const auto columns = static_cast<int>((27 + block_k - 1) / block_k);
    for (std::int64_t heads : {1, 2}) {
      auto counts = random_tensor({2, heads, rows}, 0, 4, seed++);
      // Entries of -1 and blocks past the end are ignored, however often they stand there.
      auto indices = random_tensor({2, heads, rows, 4}, -1, columns + 1, seed++);
      remove_repeats(indices);
      expect_visible(Mask::block_list(shape, counts.view(), indices.view(), block_q, block_k), shape,
                     [&, q_size = block_q, k_size = block_k](auto b, auto h, auto q, auto k) {
                       return listed(counts, indices, b, head_of(heads, h, shape), q / q_size, k / k_size);
                     });
    }
  }
}

// Field case F051: the list decides, however true the predicate is.
TEST(BlockList, APredicateOnlyTakesAwayFromTheListedBlocks) {
  const AttentionShape shape = sizes(1, 1, 1, 24, 24);
  IntTensor counts({1, 1, 3}, {1, 1, 2});
  IntTensor indices({1, 1, 3, 2}, {0, 2, 0, 0, 2, 0});
  const Mask everything = Mask::full();
  expect_visible(Mask::block_list(shape, counts.view(), indices.view(), 8, 8, &everything), shape,
                 [&](auto, auto, auto q, auto k) { return listed(counts, indices, 0, 0, q / 8, k / 8); });
  const Mask causal = Mask::causal();
  expect_visible(Mask::block_list(shape, counts.view(), indices.view(), 8, 8, &causal), shape,
                 [&](auto, auto, auto q, auto k) { return k <= q && listed(counts, indices, 0, 0, q / 8, k / 8); });
}

// Field case F058.
TEST(BlockList, EntriesPastTheCountAndOutsideTheKeysShowNothing) {
  const AttentionShape shape = sizes(1, 1, 1, 32, 32);
  constexpr std::int32_t huge = std::numeric_limits<std::int32_t>::max();
  IntTensor counts({1, 1, 4}, {0, 1, 3, 3});
  IntTensor indices({1, 1, 4, 3}, {1, 1, 1, 2, 0, 0, -1, 4, 11, huge, 3, -1});
  expect_visible(Mask::block_list(shape, counts.view(), indices.view(), 8, 8), shape,
                 [](auto, auto, auto q, auto k) { return (q / 8 == 1 && k / 8 == 2) || (q / 8 == 3 && k / 8 == 3); });
}

// Field case F056.
TEST(BlockList, ABlockThatIsListedTwiceInARowIsRefusedWithItsPlace) {
  const AttentionShape shape = sizes(2, 4, 2, 16, 32);
  for (std::int64_t heads : {1, 2, 4}) {
    IntTensor counts({1, 1, 2}, {3, 3});
    IntTensor indices({2, heads, 2, 4});
    for (std::size_t i = 0; i < indices.values.size(); i += 4) {
      const std::int32_t row[] = {2, 0, 1, 2};  // the second 2 is past the count
      std::copy_n(row, 4, &indices.values[i]);
    }
    EXPECT_TRUE(Mask::block_list(shape, counts.view(), indices.view(), 8, 8).has_value());
    indices.at({1, heads - 1, 1, 2}) = 2;
    const auto refused = Mask::block_list(shape, counts.view(), indices.view(), 8, 8);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::bad_argument);
    EXPECT_EQ(refused.error().argument, "indices[1, " + std::to_string(heads - 1) + ", 1, 2]");
    EXPECT_EQ(refused.error().got, "block 2, which entry 0 of the row lists already");
    EXPECT_EQ(refused.error().takes, "each key block once a row");
  }
}

// Field case F056: counts of every head decide how much of a shared list is read.
TEST(BlockList, ARepeatThatOnlyOneHeadCountsIsRefusedAndOneThatNoneCountsIsNot) {
  const AttentionShape shape = sizes(1, 4, 2, 8, 32);
  IntTensor counts({1, 2, 1}, {1, 1});
  IntTensor indices({1, 1, 1, 2}, {3, 3});
  EXPECT_TRUE(Mask::block_list(shape, counts.view(), indices.view(), 8, 8).has_value());
  counts.at({0, 1, 0}) = 2;
  const auto refused = Mask::block_list(shape, counts.view(), indices.view(), 8, 8);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().argument, "indices[0, 0, 0, 1]");
}

// Field case F056: a GPU's list is not read; what it repeats it lists all the same.
TEST(BlockList, ListsThatRepeatABlockLaterShowTheUnion) {
  const AttentionShape shape = sizes(1, 1, 1, 8, 32);
  IntTensor counts({1, 1, 1}, {3});
  IntTensor indices({1, 1, 1, 3}, {0, 1, 2});
  const auto mask = Mask::block_list(shape, counts.view(), indices.view(), 8, 8);
  indices.values = {2, 2, 0};
  expect_visible(mask, shape, [](auto, auto, auto, auto k) { return k / 8 == 2 || k / 8 == 0; });
}

TEST(BlockList, CountsThatChangeLaterToNonsenseStayWithinTheList) {
  const AttentionShape shape = sizes(1, 1, 1, 16, 16);
  IntTensor counts({1, 1, 2}, {1, 1});
  IntTensor indices({1, 1, 2, 1}, {1, 0});
  const auto mask = Mask::block_list(shape, counts.view(), indices.view(), 8, 8);
  counts.values = {std::numeric_limits<std::int32_t>::max(), -4};
  expect_visible(mask, shape, [](auto, auto, auto q, auto k) { return q < 8 && k >= 8; });
}

}  // namespace
}  // namespace flashspan::testing
