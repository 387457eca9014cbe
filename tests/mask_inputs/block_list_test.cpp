// Block lists against loops over the listed blocks.
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

TEST(BlockList, APairIsVisibleIfItsBlockIsListed) {
  unsigned seed = 1;
  for (const auto& [block_q, block_k] : {std::pair<std::int64_t, std::int64_t>{4, 4}, {3, 8}, {16, 5}}) {
    const AttentionShape shape = sizes(2, 4, 2, 18, 27);
    const std::int64_t rows = (18 + block_q - 1) / block_q;
    const auto columns = static_cast<int>((27 + block_k - 1) / block_k);
    for (std::int64_t heads : {1, 2}) {
      auto counts = random_tensor({2, heads, rows}, 0, 4, seed++);
      // Duplicates, entries of -1 and blocks past the end are ignored.
      auto indices = random_tensor({2, heads, rows, 4}, -1, columns + 1, seed++);
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
