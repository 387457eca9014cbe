// head_dims_test.cpp -- every kind of head dim, different ones for q.k and for values, and heads shared by a group.
#include <gtest/gtest.h>

#include <limits>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class HeadDims : public AttentionTest {
 protected:
  /// Causal within documents of 31 and the rest, with rows apart and LSE gradients.
  void expect_head_dims(Index query_heads, Index kv_heads, Index head_dim_qk, Index head_dim_v) {
    SCOPED_TRACE(std::to_string(head_dim_qk) + "/" + std::to_string(head_dim_v));
    Integers document = document_ids({31, 106});
    const Arrangement gaps{.row_gap = 8};
    expect_passes({.shape = shape_of(1, query_heads, kv_heads, 137, 137, head_dim_qk, head_dim_v),
                   .mask = expect_value(Mask::parse("causal_document", {{"doc", view_of(document, {137})}})),
                   .visible = [](Index, Index, Index q, Index k) { return k <= q && (q < 31) == (k < 31); },
                   .lse_gradient = true,
                   .query = gaps,
                   .key = gaps,
                   .value = gaps,
                   .out = gaps,
                   .out_gradient = gaps});
  }
};
FLASHSPAN_ON_EVERY_PLACE(HeadDims);

TEST_P(HeadDims, EveryEighthOfATileWorks) {
  for (Index head_dim : {16, 24, 40, 64, 96, 128, 256}) expect_head_dims(2, 1, head_dim, head_dim);
}

// F029: accumulators, gradients and the memory between rows are poisoned by every test of this suite.
TEST_P(HeadDims, HeadDimsBetweenTheUsualOnesLeaveTheirNeighboursAlone) {
  for (Index head_dim : {72, 104, 136, 152, 176}) expect_head_dims(2, 2, head_dim, head_dim);
}

// F025
TEST_P(HeadDims, ValuesMayHaveAnotherHeadDimThanKeysUnderGroupedHeads) {
  expect_head_dims(8, 2, 64, 128);
  expect_head_dims(6, 3, 64, 128);
  expect_head_dims(8, 2, 128, 64);
  expect_head_dims(6, 3, 128, 64);
  expect_head_dims(2, 1, 192, 128);
  expect_head_dims(2, 1, 256, 16);
  expect_head_dims(2, 1, 16, 256);
}

// F031
TEST_P(HeadDims, ARandomMaskOnRaggedBatchesIsExactForEveryBatchSize) {
  for (const auto& [head_dim_qk, head_dim_v] : {std::pair<Index, Index>{192, 128}, {64, 96}}) {
    for (Index batch : {1, 2, 5, 12}) {
      SCOPED_TRACE(batch);
      Integers dense = random_integers(static_cast<std::size_t>(batch * 37 * 54), 0, 1, 3);
      Integers used = random_integers(static_cast<std::size_t>(batch), 1, 54, 4);
      const Mask mask =
          expect_value(Mask::parse("(m[b, q, k] == 1) & (k < used[b])",
                                   {{"m", view_of(dense, {batch, 37, 54})}, {"used", view_of(used, {batch})}}));
      expect_passes({.shape = shape_of(batch, 2, 2, 37, 54, head_dim_qk, head_dim_v),
                     .mask = mask,
                     .visible =
                         [&](Index b, Index, Index q, Index k) {
                           return dense[static_cast<std::size_t>((b * 37 + q) * 54 + k)] == 1 &&
                                  k < used[static_cast<std::size_t>(b)];
                         },
                     .backward = batch == 2});
    }
  }
}

class GroupedHeads : public AttentionTest {};
FLASHSPAN_ON_EVERY_PLACE(GroupedHeads);

// F024
TEST_P(GroupedHeads, EveryRatioOfQueryToKeyHeadsIsExact) {
  for (const auto& [query_heads, kv_heads] : {std::pair<Index, Index>{3, 1}, {10, 2}, {12, 2}, {28, 4}, {12, 1}}) {
    for (Index q_len : {1, 16, 33}) {
      SCOPED_TRACE(std::to_string(query_heads) + "/" + std::to_string(kv_heads) + ", " + std::to_string(q_len));
      expect_passes({.shape = shape_of(1, query_heads, kv_heads, q_len, 300, 128),
                     .mask = Mask::causal(),
                     .visible = [q_len](Index, Index, Index q, Index k) { return k <= q + 300 - q_len; },
                     .backward = q_len == 33 && query_heads < 28});
    }
  }
}

// F022
TEST_P(GroupedHeads, ALayoutGivenOnceOrPerBatchOrPerHeadIsTheSameLayout) {
  for (Index q_len : {1, 37}) {
    const AttentionShape shape = shape_of(4, 8, 2, q_len, 512, 64);
    const Inputs inputs = random_inputs(shape);
    const Index blocks = 8;
    const auto with = [&](Index batch, Index heads, bool per_head) {
      Integers ranges;
      for_each_row(oracle::Tensor(batch, heads, q_len, 1), [&](Index, Index h, Index q) {
        const auto low = static_cast<std::int32_t>(64 * ((q + (per_head ? h : 0)) % blocks));
        ranges.insert(ranges.end(), {low, low + 100});
      });
      for (std::int32_t& bound : ranges) bound = std::min<std::int32_t>(bound, 512);
      const Mask mask = expect_value(Mask::key_ranges(shape, view_of(ranges, {batch, heads, q_len, 1, 2})));
      return expect_passes({.shape = shape,
                            .mask = mask,
                            .visible =
                                [=](Index, Index h, Index q, Index k) {
                                  const Index low = 64 * ((q + (per_head ? h : 0)) % blocks);
                                  return k >= low && k < low + 100;
                                },
                            .deterministic = true},
                           inputs);
    };
    const oracle::Answer shared = with(1, 1, false);
    EXPECT_TRUE(same_bits(with(4, 1, false), shared));
    EXPECT_TRUE(same_bits(with(1, 8, false), shared));
    EXPECT_TRUE(same_bits(with(4, 8, false), shared));
    with(1, 8, true);
  }
}

class EveryDtype : public AttentionTest {};
INSTANTIATE_TEST_SUITE_P(Places, EveryDtype, testing::ValuesIn(places_of_every_dtype()), name_of);

TEST_P(EveryDtype, TensorsOfEveryElementTypeAreServedInBothDirections) {
  expect_passes({.shape = shape_of(2, 4, 2, 129, 200, 64),
                 .mask = Mask::causal(),
                 .visible = [](Index, Index, Index q, Index k) { return k <= q + 71; },
                 .lse_gradient = true});
}

// F032
TEST_P(EveryDtype, ResultsOfAnotherElementTypeThanTheInputsAreRefused) {
  const Scenario scenario{.shape = shape_of(1, 1, 1, 16, 16, 16), .backward = false};
  const Inputs inputs = random_inputs(scenario.shape);
  PlacedCall placed(scenario, inputs, device(), dtype());
  ForwardCall call = placed.forward_call();
  call.value.dtype = dtype() == DType::bf16 ? DType::f16 : DType::bf16;
  const auto prepared = attention().prepare(call);
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().code, ErrorCode::bad_argument);
  EXPECT_NE(prepared.error().argument.find("value"), std::string::npos) << prepared.error().message();
  EXPECT_NE(prepared.error().takes.find("one dtype"), std::string::npos) << prepared.error().message();
}

}  // namespace
}  // namespace flashspan::tests
