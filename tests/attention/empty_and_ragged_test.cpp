// empty_and_ragged_test.cpp -- batches, query sides and key sides without elements, and ragged packs by masks.
#include <gtest/gtest.h>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class EmptyAndRagged : public AttentionTest {
 protected:
  /// Sequence s has queries [cu_q[s], cu_q[s+1]) and keys [cu_k[s], cu_k[s+1]) of one pack.
  Scenario packed(Index query_heads, Index kv_heads, Index head_dim, const std::vector<Index>& cu_q,
                  const std::vector<Index>& cu_k) {
    std::vector<Index> q_lengths, k_lengths;
    for (std::size_t s = 0; s + 1 < cu_q.size(); ++s) {
      q_lengths.push_back(cu_q[s + 1] - cu_q[s]);
      k_lengths.push_back(cu_k[s + 1] - cu_k[s]);
    }
    q_document_ = document_ids(q_lengths);
    k_document_ = document_ids(k_lengths);
    Scenario scenario;
    scenario.shape = shape_of(1, query_heads, kv_heads, cu_q.back(), cu_k.back(), head_dim);
    scenario.mask = expect_value(Mask::parse("q_doc[q] == k_doc[k]", {{"q_doc", view_of(q_document_, {cu_q.back()})},
                                                                      {"k_doc", view_of(k_document_, {cu_k.back()})}}));
    scenario.visible = [cu_q, cu_k](Index, Index, Index q, Index k) {
      for (std::size_t s = 0; s + 1 < cu_q.size(); ++s) {
        if (q >= cu_q[s] && q < cu_q[s + 1]) return k >= cu_k[s] && k < cu_k[s + 1];
      }
      return false;
    };
    return scenario;
  }

  Integers q_document_, k_document_;
};
FLASHSPAN_ON_EVERY_PLACE(EmptyAndRagged);

// F012
TEST_P(EmptyAndRagged, SequencesOfAPackWithoutQueriesOrKeysDisturbNoOther) {
  expect_passes(packed(9, 3, 64, {0, 0, 1, 1, 2}, {0, 0, 3, 3, 8}));
  expect_passes(packed(21, 7, 120, {0, 0, 0, 0, 1}, {0, 0, 0, 0, 1}));
}

// F014
TEST_P(EmptyAndRagged, NoKeysGiveZeroRowsAndMinusInfinity) {
  for (const bool causal : {false, true}) {
    Scenario scenario{.shape = shape_of(2, 4, 2, 37, 0, 64)};
    if (causal) scenario.mask = Mask::causal();
    const oracle::Answer answer = run(scenario, random_inputs(scenario.shape));
    EXPECT_TRUE(all_equal("out", answer.out, 0.0));
    EXPECT_TRUE(all_equal("lse", answer.lse, -infinity));
    EXPECT_TRUE(all_equal("query_gradient", answer.query_gradient, 0.0));
  }
}

// F014
TEST_P(EmptyAndRagged, NoQueriesGiveZeroKeyAndValueGradients) {
  for (const bool causal : {false, true}) {
    Scenario scenario{.shape = shape_of(2, 4, 2, 0, 37, 64)};
    if (causal) scenario.mask = Mask::causal();
    const oracle::Answer answer = run(scenario, random_inputs(scenario.shape));
    EXPECT_TRUE(all_equal("key_gradient", answer.key_gradient, 0.0));
    EXPECT_TRUE(all_equal("value_gradient", answer.value_gradient, 0.0));
  }
}

// F014
TEST_P(EmptyAndRagged, NoBatchIsNoWork) {
  Scenario scenario{.shape = shape_of(0, 4, 2, 37, 65, 64), .mask = Mask::causal()};
  const oracle::Answer answer = run(scenario, random_inputs(scenario.shape));
  EXPECT_TRUE(answer.out.values.empty());
}

// F015, with closed forms: bottom-right causal within each sequence, where keys are fewer than queries.
TEST_P(EmptyAndRagged, OneKeyForManyQueriesUnderABottomRightCausalMask) {
  const std::vector<Index> cu_q{0, 76, 110, 256};
  Scenario scenario = packed(1, 1, 32, cu_q, {0, 1, 2, 3});
  Integers last{75, 109, 255};
  scenario.mask = expect_value(Mask::parse("(q_doc[q] == k) & (q >= last[k])",
                                           {{"q_doc", view_of(q_document_, {256})}, {"last", view_of(last, {3})}}));
  Inputs inputs = random_inputs(scenario.shape, 1, 3);
  inputs.out_gradient = oracle::Tensor(1, 1, 256, 32, 1.0);
  const oracle::Answer answer = run(scenario, inputs);
  for (Index q = 0; q < 256; ++q) {
    const bool is_last = q == 75 || q == 109 || q == 255;
    const Index sequence = q < 76 ? 0 : q < 110 ? 1 : 2;
    EXPECT_EQ(answer.lse.at(0, 0, q) == -infinity, !is_last) << q;
    for (Index d = 0; d < 32; ++d) {
      EXPECT_EQ(answer.out.at(0, 0, q, d), is_last ? inputs.value.at(0, 0, sequence, d) : 0.0) << q;
    }
  }
  // P = 1 and dS = dP - sum(dO * out): zero up to the roundings of two sums over 32 columns.
  const double tolerance = dtype() == DType::f32 ? 1e-3 : 0.05;
  EXPECT_TRUE(near("query_gradient", answer.query_gradient, oracle::Tensor(1, 1, 256, 32), tolerance));
  EXPECT_TRUE(near("key_gradient", answer.key_gradient, oracle::Tensor(1, 1, 3, 32), tolerance));
  EXPECT_TRUE(all_equal("value_gradient", answer.value_gradient, 1.0));
}

}  // namespace
}  // namespace flashspan::tests
