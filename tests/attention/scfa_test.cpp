// scfa_test.cpp -- SCFA's index and hash forms (arXiv 2306.01160) in both directions, unsorted lists included.
#include <gtest/gtest.h>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class Scfa : public AttentionTest {};
FLASHSPAN_ON_EVERY_PLACE(Scfa);

// S01
TEST_P(Scfa, TheStrictRuleLeavesTheFirstTokenOfEveryBucketEmpty) {
  const AttentionShape shape = shape_of(1, 1, 1, 7, 7, 16);
  Integers hash = {0, 1, 0, 2, 1, 0, 3};
  Integers index = {0, 1, 2, 3, 4, 5, 6};
  for (const bool strict : {true, false}) {
    const Mask mask = expect_value(Mask::scfa_hash(shape, view_of(index, {1, 1, 7}), view_of(index, {1, 1, 7}),
                                                   view_of(hash, {1, 1, 7}), view_of(hash, {1, 1, 7}), strict));
    const oracle::Answer answer = expect_passes(
        {.shape = shape, .mask = mask, .visible = [=](Index, Index, Index q, Index k) {
           return hash[static_cast<std::size_t>(q)] == hash[static_cast<std::size_t>(k)] && (strict ? k < q : k <= q);
         }});
    for (Index q = 0; q < 7; ++q) {
      const bool first = q == 0 || q == 1 || q == 3 || q == 6;
      EXPECT_EQ(answer.lse.at(0, 0, q) == -infinity, strict && first) << q;
    }
  }
}

// S02
TEST_P(Scfa, IndicesInAnyOrderShowEveryKeyUpToTheQuery) {
  constexpr Index length = 200;
  const AttentionShape shape = shape_of(1, 2, 1, 150, length, 64);
  Integers queries = random_integers(150, 0, 400, 7);
  queries[11] = -1;  // padding
  const auto expect_keys = [&](Integers keys) {
    const Mask mask =
        expect_value(Mask::scfa_index(shape, view_of(queries, {1, 1, 150}), view_of(keys, {1, 1, length})));
    expect_passes({.shape = shape, .mask = mask, .visible = [&](Index, Index, Index q, Index k) {
                     const auto query = queries[static_cast<std::size_t>(q)];
                     const auto key = keys[static_cast<std::size_t>(k)];
                     return query >= 0 && key >= 0 && query >= key;
                   }});
  };
  Integers ascending(length), descending(length), two_runs(length), shuffled(length);
  for (std::size_t i = 0; i < length; ++i) {
    ascending[i] = static_cast<std::int32_t>(2 * i);
    descending[i] = static_cast<std::int32_t>(2 * (length - i));
    two_runs[i] = static_cast<std::int32_t>(4 * (i % 100));
    shuffled[i] = static_cast<std::int32_t>(2 * ((i * 77) % length));
  }
  shuffled[5] = -1;
  expect_keys(ascending);
  expect_keys(descending);
  expect_keys(two_runs);
  expect_keys(shuffled);
}

// S02
TEST_P(Scfa, UnsortedBucketsPerHeadAndBatch) {
  const AttentionShape shape = shape_of(2, 4, 2, 130, 190, 64);
  Integers q_index = random_integers(std::size_t{2} * 2 * 130, 0, 300, 1);
  Integers k_index = random_integers(std::size_t{2} * 2 * 190, 0, 300, 2);
  Integers q_hash = random_integers(std::size_t{2} * 2 * 130, 0, 4, 3);
  Integers k_hash = random_integers(std::size_t{2} * 2 * 190, 0, 4, 4);
  const Mask mask = expect_value(Mask::scfa_hash(shape, view_of(q_index, {2, 2, 130}), view_of(k_index, {2, 2, 190}),
                                                 view_of(q_hash, {2, 2, 130}), view_of(k_hash, {2, 2, 190})));
  expect_passes({.shape = shape, .mask = mask, .visible = [=](Index b, Index h, Index q, Index k) {
                   const auto row = static_cast<std::size_t>((b * 2 + h / 2) * 130 + q);
                   const auto column = static_cast<std::size_t>((b * 2 + h / 2) * 190 + k);
                   return q_hash[row] == k_hash[column] && q_index[row] >= k_index[column];
                 }});
}

// S05
TEST_P(Scfa, IndicesWithDifferentInnerStridesEqualContiguousCopies) {
  const AttentionShape shape = shape_of(1, 1, 1, 100, 100, 64);
  Integers pairs = random_integers(200, 0, 300, 9);
  Integers q_index(100), k_index(100);
  for (std::size_t i = 0; i < 100; ++i) {
    q_index[i] = pairs[2 * i];
    k_index[i] = pairs[2 * i + 1];
  }
  const auto strided = [&](std::size_t first) {
    TensorView view = TensorView::contiguous(pairs.data() + first, DType::i32, {1, 1, 100});
    view.strides[2] = 2;
    return view;
  };
  const Inputs inputs = random_inputs(shape);
  const Mask mask = expect_value(Mask::scfa_index(shape, strided(0), strided(1)));
  const Mask copied =
      expect_value(Mask::scfa_index(shape, view_of(q_index, {1, 1, 100}), view_of(k_index, {1, 1, 100})));
  EXPECT_TRUE(same_bits_but_for_sums(run({.shape = shape, .mask = mask}, inputs),
                                     run({.shape = shape, .mask = copied}, inputs)));
}

}  // namespace
}  // namespace flashspan::tests
