// large_sizes_test.cpp -- many heads, many batches, many partial tiles, and tensors of more than 2^31 elements or
// bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class LargeSizes : public AttentionTest {};
FLASHSPAN_ON_EVERY_PLACE(LargeSizes);

// F028
TEST_P(LargeSizes, MoreHeadsOrBatchesThanAGridDimensionHolds) {
  for (const bool many_heads : {true, false}) {
    SCOPED_TRACE(many_heads);
    const Index many = on_cuda() ? 65536 : 8192;  // the CPU has no grid
    const Index batch = many_heads ? 1 : many;
    const Index heads = many_heads ? many : 1;
    Scenario scenario{.shape = shape_of(batch, heads, heads, on_cuda() ? 10 : 2, on_cuda() ? 10 : 2, 16),
                      .mask = Mask::causal()};
    const Inputs inputs = random_inputs(scenario.shape);
    const oracle::Answer answer = run(scenario, inputs);
    // The first row sees its own key alone, in every head of every batch.
    for (Index b = 0; b < batch; ++b) {
      for (Index h = 0; h < heads; ++h) {
        ASSERT_EQ(answer.out.at(b, h, 0, 7), inputs.value.at(b, h, 0, 7)) << b << ", " << h;
        // dO v and sum(P dO v) cancel, up to the order in which they were summed.
        ASSERT_NEAR(answer.query_gradient.at(b, h, 0, 7), 0.0, 1e-5) << b << ", " << h;
      }
    }
  }
}

// A plan keeps the bits of some thousand partial tiles (workspace_layout.hpp); those beyond are evaluated by the
// kernel.
TEST_P(LargeSizes, MorePartialTilesThanAPlanKeepsBitsOfAreExact) {
  constexpr Index batch = 90, heads = 100;   // each with one tile
  const Index length = on_cuda() ? 40 : 10;  // the CPU keeps no bits
  const auto count = static_cast<std::size_t>(batch * heads * length);
  Integers query_ranks = random_integers(count, 0, 1000, 1);
  Integers key_ranks = random_integers(count, 0, 1000, 2);
  Scenario scenario{.shape = shape_of(batch, heads, heads, length, length, 16)};
  scenario.mask =
      expect_value(Mask::parse("x[b, h, q] >= y[b, h, k]", {{"x", view_of(query_ranks, {batch, heads, length})},
                                                            {"y", view_of(key_ranks, {batch, heads, length})}}));
  scenario.visible = [&](Index b, Index h, Index q, Index k) {
    const auto first = static_cast<std::size_t>((b * heads + h) * length);
    return query_ranks[first + static_cast<std::size_t>(q)] >= key_ranks[first + static_cast<std::size_t>(k)];
  };
  expect_passes(scenario);
}

// F028
TEST_P(LargeSizes, ALongSequenceOfZerosHasTheLogarithmOfItsLength) {
  const Index queries = 70;
  constexpr Index keys = 33728;
  Scenario scenario{.shape = shape_of(1, 1, 1, queries, keys, 16), .backward = false};
  Inputs inputs = random_inputs(scenario.shape);
  inputs.query = oracle::Tensor(1, 1, queries, 16);
  inputs.key = inputs.value = oracle::Tensor(1, 1, keys, 16);
  const oracle::Answer answer = run(scenario, inputs);
  EXPECT_TRUE(all_equal("out", answer.out, 0.0));
  EXPECT_TRUE(near("lse", answer.lse, oracle::Tensor(1, 1, queries, 1, std::log(33728.0)), 1e-4));
}

// F028: more query tiles of 64 rows than a grid dimension holds.
TEST_P(LargeSizes, MoreQueryTilesThanAGridDimensionHolds) {
  if (!on_cuda()) GTEST_SKIP() << "grids are CUDA's";
  constexpr Index queries = 64 * 65535 + 1;
  Scenario scenario{.shape = shape_of(1, 1, 1, queries, 1, 16), .backward = false};
  const Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer answer = run(scenario, inputs);
  for (Index q : {Index{0}, queries / 2, queries - 1}) {
    for (Index d = 0; d < 16; ++d) EXPECT_EQ(answer.out.at(0, 0, q, d), inputs.value.at(0, 0, 0, d)) << q;
  }
}

// F026: 8300 * 16 rows, 16384 elements apart, reach past element 2^31 (2,175,795,200) of query and its gradient.
TEST_P(LargeSizes, OffsetsPastTwoToTheThirtyFirstAreExact) {
  if (!on_cuda()) GTEST_SKIP() << "takes gigabytes";
  if (!Buffer::allocate(device(), std::int64_t{16} << 30)) GTEST_SKIP() << "the device has too little memory";
  constexpr Index batch = 8300;
  constexpr Index heads = 16;
  constexpr Index head_dim = 128;
  const Scenario scenario{.shape = shape_of(batch, heads, heads, 1, 2, head_dim),
                          .query = {.row_gap = Index{127} * 128}};
  const Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer answer = run(scenario, inputs);
  for (const auto& [b, h] : {std::pair<Index, Index>{0, 0}, {8191, 15}, {8192, 0}, {8299, 15}}) {
    SCOPED_TRACE(b);
    const auto head_of = [b = b, h = h](const oracle::Tensor& whole) {
      oracle::Tensor one(1, 1, whole.rows, whole.columns);
      std::copy_n(whole.row(b, h, 0), whole.rows * whole.columns, one.values.begin());
      return one;
    };
    oracle::Problem one;
    one.query = head_of(inputs.query);
    one.key = head_of(inputs.key);
    one.value = head_of(inputs.value);
    one.out_gradient = head_of(inputs.out_gradient);
    one.scale = 1 / std::sqrt(128.0);
    oracle::Answer ours;
    ours.out = head_of(answer.out);
    ours.lse = head_of(answer.lse);
    ours.query_gradient = head_of(answer.query_gradient);
    ours.key_gradient = head_of(answer.key_gradient);
    ours.value_gradient = head_of(answer.value_gradient);
    EXPECT_TRUE(
        oracle::passes(ours, oracle::reference_attention(one), oracle::plain_attention(one, format()), format()));
  }
}

}  // namespace
}  // namespace flashspan::tests
