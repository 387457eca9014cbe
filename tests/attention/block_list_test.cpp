// block_list_test.cpp -- block lists: which blocks are listed decides, a predicate only takes away, order is free.
#include <gtest/gtest.h>

#include <limits>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

/// Listed blocks as the builder takes them, and the same set as a table.
struct Blocks {
  Index block_q, block_k, rows, columns;
  Integers counts, indices;
  std::vector<bool> listed;

  Blocks(const AttentionShape& shape, Index size_q, Index size_k)
      : block_q(size_q),
        block_k(size_k),
        rows((shape.q_len + size_q - 1) / size_q),
        columns((shape.kv_len + size_k - 1) / size_k),
        counts(static_cast<std::size_t>(rows)),
        indices(static_cast<std::size_t>(rows * columns), -1),
        listed(static_cast<std::size_t>(rows * columns)) {}

  void list(Index row, Index column) {
    auto& count = counts[static_cast<std::size_t>(row)];
    indices[static_cast<std::size_t>(row * columns + count++)] = static_cast<std::int32_t>(column);
    listed[static_cast<std::size_t>(row * columns + column)] = true;
  }
  [[nodiscard]] bool shows(Index q, Index k) const {
    return listed[static_cast<std::size_t>(q / block_q * columns + k / block_k)];
  }
  Mask mask(const AttentionShape& shape, const Mask* predicate = nullptr) {
    return expect_value(Mask::block_list(shape, view_of(counts, {1, 1, rows}), view_of(indices, {1, 1, rows, columns}),
                                         block_q, block_k, predicate));
  }
};

class BlockList : public AttentionTest {
 protected:
  Mask causal_ = Mask::causal();
};
FLASHSPAN_ON_EVERY_PLACE(BlockList);

Blocks causal_blocks(const AttentionShape& shape, Index block) {
  Blocks blocks(shape, block, block);
  for (Index row = 0; row < blocks.rows; ++row)
    for (Index column = 0; column <= row && column < blocks.columns; ++column) blocks.list(row, column);
  return blocks;
}

// F035
TEST_P(BlockList, ACausalMaskGivenAsBlocksHasTheGradientsOfThePlainOne) {
  const Index length = on_cuda() ? 2048 : 768;
  const AttentionShape shape = shape_of(1, 1, 1, length, length, 64);
  Blocks blocks = causal_blocks(shape, 128);
  const Inputs inputs = random_inputs(shape);
  const auto visible = [](Index, Index, Index q, Index k) { return k <= q; };
  expect_passes({.shape = shape, .mask = blocks.mask(shape, &causal_), .visible = visible}, inputs);
}

// F035
TEST_P(BlockList, ARandomListWithoutSymmetryIsExactInBothDirections) {
  const AttentionShape shape = shape_of(1, 2, 2, 300, 500, 64);
  Blocks blocks(shape, 32, 48);
  oracle::RandomNumbers numbers(4);
  for (Index row = 0; row < blocks.rows; ++row) {
    for (Index column = 0; column < blocks.columns; ++column) {
      if (numbers.chance(0.3)) blocks.list(row, column);
    }
  }
  expect_passes({.shape = shape, .mask = blocks.mask(shape), .visible = [&](Index, Index, Index q, Index k) {
                   return blocks.shows(q, k);
                 }});
}

// F036
TEST_P(BlockList, BlocksFilledToVeryDifferentDegreesKeepTheirPadsOut) {
  constexpr Index length = 320;
  const AttentionShape shape = shape_of(1, 2, 1, length, length, 64);
  Integers filled = {1, 64, 7, 33, 2};
  Blocks blocks(shape, 64, 64);
  for (Index row = 0; row < 5; ++row)
    for (Index column = 0; column < 5; ++column) blocks.list(row, column);
  const Mask in_use = expect_value(
      Mask::parse("(k % 64 < filled[k // 64]) & (q % 64 < filled[q // 64])", {{"filled", view_of(filled, {5})}}));
  const auto used = [&](Index s) { return s % 64 < filled[static_cast<std::size_t>(s / 64)]; };
  Inputs inputs = random_inputs(shape);
  for (oracle::Tensor* tensor : {&inputs.key, &inputs.value}) {
    for (Index s = 0; s < length; ++s) {
      for (Index d = 0; d < 64; ++d) {
        if (!used(s)) tensor->at(0, 0, s, d) = oracle::round_to(format(), 1e4F);
      }
    }
  }
  const oracle::Answer answer =
      expect_passes({.shape = shape,
                     .mask = blocks.mask(shape, &in_use),
                     .visible = [&](Index, Index, Index q, Index k) { return used(q) && used(k); }},
                    inputs);
  for (Index s = 0; s < length; ++s) {
    if (used(s)) continue;
    EXPECT_EQ(answer.key_gradient.at(0, 0, s, 1), 0.0) << s;
    EXPECT_EQ(answer.value_gradient.at(0, 0, s, 1), 0.0) << s;
  }
}

// F051
TEST_P(BlockList, AQueryThatListsOneBlockSeesThatBlockOnly) {
  const AttentionShape shape = shape_of(1, 2, 2, 512, 512, 64);
  Blocks blocks(shape, 128, 128);
  for (Index row = 0; row < 4; ++row) blocks.list(row, 0);
  const Mask everything = Mask::full();
  expect_passes({.shape = shape, .mask = blocks.mask(shape, &everything), .visible = [](Index, Index, Index, Index k) {
                   return k < 128;
                 }});
}

// F054
TEST_P(BlockList, QueriesOfAWindowIntoALongerRunGiveTheRowsOfThatRun) {
  constexpr Index length = 500;
  const AttentionShape whole = shape_of(1, 1, 1, length, length, 64);
  Blocks blocks = causal_blocks(whole, 256);
  const Inputs inputs = random_inputs(whole);
  const oracle::Answer full = run({.shape = whole, .mask = blocks.mask(whole, &causal_), .backward = false}, inputs);
  for (const auto& [first, count] : {std::pair<Index, Index>{0, 256}, {256, 244}, {350, 1}}) {
    SCOPED_TRACE(first);
    AttentionShape part = whole;
    part.q_len = count;
    Inputs part_inputs = inputs;
    part_inputs.query = oracle::Tensor(1, 1, count, 64);
    std::copy_n(inputs.query.row(0, 0, first), count * 64, part_inputs.query.values.begin());
    const Mask mask = expect_value(Mask::parse("q + first >= k", {}, {{"first", std::int64_t{first}}}));
    const oracle::Answer rows = run({.shape = part, .mask = mask, .backward = false}, part_inputs);
    for (Index q = 0; q < count; ++q) {
      ASSERT_NEAR(rows.lse.at(0, 0, q), full.lse.at(0, 0, first + q), 1e-5);
      for (Index d = 0; d < 64; ++d) {
        ASSERT_NEAR(rows.out.at(0, 0, q, d), full.out.at(0, 0, first + q, d), oracle::unit_roundoff(format()) * 16);
      }
    }
  }
}

// F056
TEST_P(BlockList, TheOrderOfAListDoesNotMatter) {
  constexpr Index length = 512;
  const AttentionShape shape = shape_of(1, 1, 1, length, length, 64);
  const Inputs inputs = random_inputs(shape);
  Blocks ascending = causal_blocks(shape, 64);
  Blocks descending(shape, 64, 64);
  for (Index row = 0; row < 8; ++row)
    for (Index column = row; column >= 0; --column) descending.list(row, column);
  const oracle::Answer expected =
      run({.shape = shape, .mask = ascending.mask(shape, &causal_), .deterministic = true}, inputs);
  EXPECT_TRUE(same_bits(run({.shape = shape, .mask = descending.mask(shape, &causal_), .deterministic = true}, inputs),
                        expected));
}

// F057
TEST_P(BlockList, EveryBlockSizeWorksWithEveryHeadDimInBothDirections) {
  for (Index head_dim : {64, 96, 128, 192, 256}) {
    for (Index block : {16, 32, 48, 64, 96, 128, 256}) {
      SCOPED_TRACE("block " + std::to_string(block) + ", head dim " + std::to_string(head_dim));
      const AttentionShape shape = shape_of(1, 1, 1, 130, 260, head_dim);
      Blocks blocks(shape, block, block);
      for (Index row = 0; row < blocks.rows; ++row)
        for (Index column = row % 2; column < blocks.columns; column += 2) blocks.list(row, column);
      expect_passes({.shape = shape, .mask = blocks.mask(shape), .visible = [&](Index, Index, Index q, Index k) {
                       return blocks.shows(q, k);
                     }});
    }
  }
}

// F058
TEST_P(BlockList, EntriesThatAreNoKeyContributeNothing) {
  constexpr Index keys = 200;
  const AttentionShape shape = shape_of(1, 1, 1, 4, keys, 64);
  Integers counts = {0, 1, 5, 64};
  Integers indices(std::size_t{4} * 64);
  oracle::RandomNumbers numbers(6);
  const std::int32_t invalid[] = {-1, keys, keys + 7, std::numeric_limits<std::int32_t>::max()};
  DenseMask dense(1, 1, 4, keys);
  for (std::size_t q = 0; q < 4; ++q) {
    for (std::size_t i = 0; i < 64; ++i) {
      const bool valid = i % 3 != 1;
      const auto key = static_cast<std::int32_t>(static_cast<Index>(i) * 3 + numbers.integer(0, 2));  // no two the same
      indices[q * 64 + i] = valid ? key : invalid[i % 4];
      if (valid && static_cast<std::int32_t>(i) < counts[q]) dense.at(0, 0, static_cast<Index>(q), key) = 1;
    }
  }
  const Mask mask =
      expect_value(Mask::block_list(shape, view_of(counts, {1, 1, 4}), view_of(indices, {1, 1, 4, 64}), 1, 1));
  Inputs inputs = random_inputs(shape);
  for (double& value : inputs.query.values) value *= 256;  // logits of thousands
  for (double& value : inputs.key.values) value *= 8;
  const oracle::Answer answer = expect_passes({.shape = shape, .mask = mask, .visible = dense}, inputs);
  EXPECT_EQ(answer.lse.at(0, 0, 0), -std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace flashspan::tests
