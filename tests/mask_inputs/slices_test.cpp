// Slices against the definition of their types in terms of pairs (i, j) of an m x n rectangle.
#include "tests/mask_inputs/dense_mask.hpp"

namespace flashspan::testing {
namespace {

struct Slice {
  std::int32_t q_begin, q_end, k_begin, k_end, type;
};

bool keeps(const Slice& slice, std::int64_t q, std::int64_t k) {
  const std::int64_t i = q - slice.q_begin;
  const std::int64_t j = k - slice.k_begin;
  const std::int64_t m = slice.q_end - slice.q_begin;
  const std::int64_t n = slice.k_end - slice.k_begin;
  if (i < 0 || i >= m || j < 0 || j >= n) return false;
  const bool causal = j - i <= n - m;
  const bool inverse_causal = j >= i;
  switch (static_cast<SliceType>(slice.type)) {
    case SliceType::full:
      return true;
    case SliceType::causal:
      return causal;
    case SliceType::inverse_causal:
      return inverse_causal;
    case SliceType::bi_causal:
      return causal && inverse_causal;
  }
  return false;
}

void expect_slices(const AttentionShape& shape, const std::vector<Slice>& slices) {
  const auto count = static_cast<std::int64_t>(slices.size());
  IntTensor q_ranges({count, 2});
  IntTensor k_ranges({count, 2});
  IntTensor types({count});
  for (std::int64_t s = 0; s < count; ++s) {
    const Slice& slice = slices[static_cast<std::size_t>(s)];
    q_ranges.at({s, 0}) = slice.q_begin;
    q_ranges.at({s, 1}) = slice.q_end;
    k_ranges.at({s, 0}) = slice.k_begin;
    k_ranges.at({s, 1}) = slice.k_end;
    types.at({s}) = slice.type;
  }
  expect_visible(Mask::slices(shape, q_ranges.view(), k_ranges.view(), types.view()), shape,
                 [&](auto, auto, auto q, auto k) {
                   for (const Slice& slice : slices) {
                     if (keeps(slice, q, k)) return true;
                   }
                   return false;
                 });
}

TEST(Slices, EveryTypeOnTallWideAndSquareRectangles) {
  const AttentionShape shape = sizes(1, 1, 1, 16, 18);
  for (std::int32_t type = 0; type < 4; ++type) {
    expect_slices(shape, {{2, 8, 3, 15, type}});
    expect_slices(shape, {{1, 14, 5, 9, type}});
    expect_slices(shape, {{4, 11, 4, 11, type}});
  }
}

TEST(Slices, RandomOverlappingAndEmptySlicesMakeTheirUnion) {
  const AttentionShape shape = sizes(2, 2, 1, 20, 24);
  std::mt19937 generator(3);
  for (int round = 0; round < 6; ++round) {
    std::vector<Slice> slices;
    for (int s = 0; s < round + 1; ++s) {
      const auto draw = [&](int largest) { return std::uniform_int_distribution<std::int32_t>(0, largest)(generator); };
      slices.push_back({draw(20), draw(20), draw(24), draw(24), draw(3)});
    }
    expect_slices(shape, slices);
  }
}

TEST(Slices, NoSliceAtAllShowsNothing) { expect_slices(sizes(1, 1, 1, 4, 4), {}); }

// Field case F060: a union whose parts come in any order.
TEST(Slices, TheUnionDoesNotDependOnTheOrderOfItsSlices) {
  const AttentionShape shape = sizes(1, 1, 1, 150, 201);
  std::vector<Slice> slices{{0, 100, 0, 64, 0}, {50, 150, 64, 200, 1}, {0, 150, 200, 201, 0}, {10, 10, 5, 90, 0}};
  expect_slices(shape, slices);
  std::swap(slices[0], slices[2]);
  std::swap(slices[1], slices[3]);
  expect_slices(shape, slices);
}

}  // namespace
}  // namespace flashspan::testing
