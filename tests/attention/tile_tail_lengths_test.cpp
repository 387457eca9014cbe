// tile_tail_lengths_test.cpp -- lengths beside every multiple of a tile, Sq != Sk, and what lies behind the last row.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class TileTailLengths : public AttentionTest {};
FLASHSPAN_ON_EVERY_PLACE(TileTailLengths);

constexpr Index awkward_lengths[] = {1, 2, 17, 63, 64, 65, 127, 128, 129, 200};

TEST_P(TileTailLengths, EveryAwkwardLengthIsExactUnderACausalMask) {
  for (Index length : awkward_lengths) {
    SCOPED_TRACE(length);
    expect_passes({.shape = shape_of(1, 2, 1, length, length, 64),
                   .mask = Mask::causal(),
                   .visible = [](Index, Index, Index q, Index k) { return q >= k; },
                   .lse_gradient = true});
  }
}

TEST_P(TileTailLengths, EveryAwkwardLengthIsExactWithoutAMask) {
  for (Index length : awkward_lengths) {
    SCOPED_TRACE(length);
    expect_passes({.shape = shape_of(1, 1, 1, length, length, 64)});
  }
}

TEST_P(TileTailLengths, QueriesAndKeysMayDifferInLength) {
  for (const auto& [q_len, kv_len] : {std::pair<Index, Index>{1, 129}, {129, 1}, {63, 200}, {200, 63}, {128, 65}}) {
    SCOPED_TRACE(std::to_string(q_len) + " queries, " + std::to_string(kv_len) + " keys");
    const Index shift = kv_len - q_len;
    expect_passes({.shape = shape_of(2, 2, 2, q_len, kv_len, 64), .lse_gradient = true});
    expect_passes({.shape = shape_of(1, 2, 1, q_len, kv_len, 64),
                   .mask = Mask::causal(),
                   .visible = [shift](Index, Index, Index q, Index k) { return k <= q + shift; }});
    expect_passes({.shape = shape_of(1, 1, 1, q_len, kv_len, 64),
                   .mask = Mask::causal(/*top_left=*/true),
                   .visible = [](Index, Index, Index q, Index k) { return k <= q; }});
  }
}

TEST_P(TileTailLengths, ALongerSequenceThanManyTilesIsExact) {
  expect_passes({.shape = shape_of(1, 1, 1, 1025, 1025, 64),
                 .mask = Mask::causal(),
                 .visible = [](Index, Index, Index q, Index k) { return q >= k; }});
}

// F008
TEST_P(TileTailLengths, ACausalMaskWithADistanceBiasHasFiniteGradientsAtEveryTail) {
  const Score score = expect_value(Score::parse("score + (q - k)"));
  const oracle::ScoreFunction function{
      [](double value, Index, Index, Index q, Index k) { return value + static_cast<double>(q - k); },
      [](double, Index, Index, Index, Index) { return 1.0; }};
  const auto causal = [](Index, Index, Index q, Index k) { return q >= k; };
  for (Index length : {1, 17, 127, 129, 1025}) {
    SCOPED_TRACE(length);
    const Scenario scenario{.shape = shape_of(1, 1, 1, length, length, 64),
                            .mask = Mask::causal(),
                            .visible = causal,
                            .score = score,
                            .score_function = function};
    expect_passes(scenario);
  }
  // The same 129 rows in 192, the rest masked.
  Scenario padded{.shape = shape_of(1, 1, 1, 192, 192, 64),
                  .mask = expect_value(Mask::parse("(q >= k) & (q < 129) & (k < 129)")),
                  .visible = [](Index, Index, Index q, Index k) { return q >= k && q < 129; },
                  .score = score,
                  .score_function = function};
  const oracle::Answer answer = expect_passes(padded);
  for (Index row = 129; row < 192; ++row) EXPECT_EQ(answer.key_gradient.at(0, 0, row, 5), 0.0);
}

// F010
TEST_P(TileTailLengths, OneQueryOverEveryNumberOfKeysNeverReadsBehindTheLast) {
  for (Index kv_len = 128; kv_len < 228; kv_len += on_cuda() ? 1 : 11) {
    SCOPED_TRACE(kv_len);
    expect_passes({.shape = shape_of(1, 4, 4, 1, kv_len, 64),
                   .backward = false,
                   .key = {.sequence_major = true},
                   .value = {.sequence_major = true}});
  }
}

// F011
TEST_P(TileTailLengths, KeysBehindTheLastOneTakeNoWeightEvenIfAllScoresAreLow) {
  Integers indices{0, 1, 2, 3};
  for (Index kv_len : {65, 127, 193}) {
    SCOPED_TRACE(kv_len);
    const AttentionShape shape = shape_of(1, 1, 1, 64, kv_len, 64);
    Integers counts{static_cast<std::int32_t>((kv_len + 63) / 64)};
    Scenario scenario{
        .shape = shape,
        .mask = expect_value(Mask::block_list(shape, view_of(counts, {1, 1, 1}), view_of(indices, {1, 1, 1, 4}),
                                              /*block_q=*/64, /*block_k=*/64)),
        .backward = false};
    Inputs inputs = random_inputs(shape);
    inputs.query = oracle::Tensor(1, 1, 64, 64, 1.0);
    inputs.key = oracle::Tensor(1, 1, kv_len, 64, -1.0);  // every logit is -64 / 8 = -8
    inputs.value = oracle::Tensor(1, 1, kv_len, 64, 1.0);
    const oracle::Answer answer = run(scenario, inputs);
    EXPECT_TRUE(near("out", answer.out, oracle::Tensor(1, 1, 64, 64, 1.0), 1e-6));
    EXPECT_TRUE(near("lse", answer.lse, oracle::Tensor(1, 1, 64, 1, -8 + std::log(static_cast<double>(kv_len))), 1e-5));
  }
}

}  // namespace
}  // namespace flashspan::tests
