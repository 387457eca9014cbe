// SCFA's index and hash forms against their definitions, on lists in any order and with padding.
#include <algorithm>
#include <numeric>

#include "tests/mask_inputs/dense_mask.hpp"

namespace flashspan::testing {
namespace {

TEST(ScfaIndex, KeysUpToTheQuerysPositionAreVisibleWhateverTheOrder) {
  const AttentionShape shape = sizes(2, 4, 2, 12, 17);
  unsigned seed = 1;
  for (std::int64_t heads : {1, 2, 4}) {
    for (bool strict : {false, true}) {
      auto q_idx = random_tensor({2, heads, 12}, -2, 20, seed++);
      auto k_idx = random_tensor({1, heads, 17}, -2, 20, seed++);
      expect_visible(Mask::scfa_index(shape, q_idx.view(), k_idx.view(), strict), shape,
                     [&](auto b, auto h, auto q, auto k) {
                       const auto mh = head_of(heads, h, shape);
                       const auto query = q_idx.at({b, mh, q});
                       const auto key = k_idx.at({0, mh, k});
                       if (query < 0 || key < 0) return false;
                       return strict ? query > key : query >= key;
                     });
    }
  }
}

// Field case S02.
TEST(ScfaIndex, AscendingDescendingShuffledAndSplitListsAreAllServed) {
  const AttentionShape shape = sizes(1, 1, 1, 8, 30);
  auto q_idx = random_tensor({1, 1, 8}, 0, 29, 8);
  std::vector<std::int32_t> ascending(30);
  std::iota(ascending.begin(), ascending.end(), 0);
  auto descending = ascending;
  std::ranges::reverse(descending);
  auto shuffled = ascending;
  std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(2));
  auto two_runs = ascending;
  std::rotate(two_runs.begin(), two_runs.begin() + 11, two_runs.end());
  for (const auto& order : {ascending, descending, shuffled, two_runs}) {
    IntTensor k_idx({1, 1, 30}, order);
    expect_visible(Mask::scfa_index(shape, q_idx.view(), k_idx.view()), shape,
                   [&](auto, auto, auto q, auto k) { return q_idx.at({0, 0, q}) >= k_idx.at({0, 0, k}); });
  }
}

TEST(ScfaHash, PairsOfOneBucketInOrderAreVisible) {
  const AttentionShape shape = sizes(2, 2, 1, 14, 14);
  for (bool strict : {false, true}) {
    auto q_idx = random_tensor({2, 2, 14}, -1, 15, 1);
    auto k_idx = random_tensor({2, 1, 14}, -1, 15, 2);
    auto q_hash = random_tensor({2, 2, 14}, 0, 3, 3);
    auto k_hash = random_tensor({2, 1, 14}, 0, 3, 4);
    expect_visible(Mask::scfa_hash(shape, q_idx.view(), k_idx.view(), q_hash.view(), k_hash.view(), strict), shape,
                   [&](auto b, auto h, auto q, auto k) {
                     const auto query = q_idx.at({b, h, q});
                     const auto key = k_idx.at({b, 0, k});
                     if (query < 0 || key < 0 || q_hash.at({b, h, q}) != k_hash.at({b, 0, k})) return false;
                     return strict ? query > key : query >= key;
                   });
  }
}

// Field case S01.
TEST(ScfaHash, UnderTheStrictRuleTheFirstTokenOfABucketSeesNothing) {
  const AttentionShape shape = sizes(1, 1, 1, 7, 7);
  IntTensor idx({1, 1, 7}, {0, 1, 2, 3, 4, 5, 6});
  IntTensor hash({1, 1, 7}, {0, 1, 0, 2, 1, 0, 3});
  const auto empty_rows = [&](bool strict) {
    const auto mask = Mask::scfa_hash(shape, idx.view(), idx.view(), hash.view(), hash.view(), strict);
    EXPECT_TRUE(mask.has_value());
    const auto rows = tile_map(*mask, shape, 0, 0, 1, 7);
    std::vector<int> found;
    for (std::size_t row = 0; row < rows->kinds.size(); ++row) {
      if (rows->kinds[row] == TileKind::empty) found.push_back(static_cast<int>(row));
    }
    return found;
  };
  EXPECT_EQ(empty_rows(true), (std::vector<int>{0, 1, 3, 6}));
  EXPECT_EQ(empty_rows(false), std::vector<int>{});
}

// Field case S05.
TEST(ScfaIndex, InterleavedListsEqualSeparateOnes) {
  const AttentionShape shape = sizes(1, 1, 1, 9, 9);
  auto q_idx = random_tensor({1, 1, 9}, 0, 12, 1);
  auto k_idx = random_tensor({1, 1, 9}, 0, 12, 2);
  IntTensor interleaved({9, 2});
  for (std::int64_t i = 0; i < 9; ++i) {
    interleaved.at({i, 0}) = q_idx.at({0, 0, i});
    interleaved.at({i, 1}) = k_idx.at({0, 0, i});
  }
  TensorView queries = q_idx.view();
  queries.data = interleaved.values.data();
  queries.strides[2] = 2;
  TensorView keys = k_idx.view();
  keys.data = interleaved.values.data() + 1;
  keys.strides[2] = 2;
  expect_visible(Mask::scfa_index(shape, queries, keys), shape,
                 [&](auto, auto, auto q, auto k) { return q_idx.at({0, 0, q}) >= k_idx.at({0, 0, k}); });
}

}  // namespace
}  // namespace flashspan::testing
