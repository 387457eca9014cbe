// Forward and backward against fp64 loops: shapes, masks, score programs, dtypes, layouts.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention_run.hpp"
#include "oracle/pass_rule.hpp"
#include "oracle/random_numbers.hpp"
#include "problems.hpp"

namespace flashspan::cpu_test {
namespace {

using oracle::Index;

// Runs `problem` and holds it against the oracle by the accuracy rule. problem.visible says the same as `mask`.
void expect_reference(const oracle::Problem& problem, const BoundProgram* mask, const BoundProgram* score,
                      const RunOptions& options) {
  const oracle::Answer ours = run_attention(problem, mask, score, options);
  const oracle::Format format = format_of(options.dtype);
  const oracle::Answer reference = oracle::reference_attention(problem);
  EXPECT_TRUE(oracle::passes(ours, reference, oracle::plain_attention(problem, format), format));
}

std::vector<std::int32_t> documents(std::int64_t length, std::int64_t each) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) / each);
  return ids;
}

TEST(Attention, EqualsTheReferenceForEveryMask) {
  const AttentionShape shape{2, 4, 2, 150, 170, 32, 48};
  std::vector<std::int32_t> document = documents(170, 47);
  std::vector<std::int32_t> lengths{100, 3};
  std::vector<std::int32_t> ranges;
  for (std::int32_t q = 0; q < 150; ++q) {
    for (const std::int32_t value : {q / 2, q / 2 + 9, 160 - q, 170 - q}) ranges.push_back(value);
  }
  const std::vector<NamedData> tensors{{"doc", TensorView::contiguous(document.data(), DType::i32, {170})},
                                       {"len", TensorView::contiguous(lengths.data(), DType::i32, {2})},
                                       {"ranges", TensorView::contiguous(ranges.data(), DType::i32, {150, 2, 2})}};
  const auto same_document = [&](Index q, Index k) {
    return document[static_cast<std::size_t>(q)] == document[static_cast<std::size_t>(k)];
  };
  struct MaskCase {
    const char* text;
    oracle::Visible visible;
  };
  const std::vector<MaskCase> cases{
      {"q >= k", [](Index, Index, Index q, Index k) { return q >= k; }},
      {"q + kv_len - q_len >= k", [](Index, Index, Index q, Index k) { return q + 20 >= k; }},
      {"(q - 20 <= k) & (k <= q + 5)", [](Index, Index, Index q, Index k) { return q - 20 <= k && k <= q + 5; }},
      {"doc[q] == doc[k]", [&](Index, Index, Index q, Index k) { return same_document(q, k); }},
      {"(doc[q] == doc[k]) & (q >= k)", [&](Index, Index, Index q, Index k) { return same_document(q, k) && q >= k; }},
      {"(q - k) % 3 != 1", [](Index, Index, Index q, Index k) { return (q - k + 300) % 3 != 1; }},
      {"k <= q + h * 30", [](Index, Index h, Index q, Index k) { return k <= q + h * 30; }},
      {"k < len[b]", [](Index b, Index, Index, Index k) { return k < (b == 0 ? 100 : 3); }},
      {"k < 0", [](Index, Index, Index, Index) { return false; }},
      {"k >= 0", [](Index, Index, Index, Index) { return true; }},
      {"(q == 70) & (k == 169)", [](Index, Index, Index q, Index k) { return q == 70 && k == 169; }},
      {"any(ranges[q, r, 0] <= k and k < ranges[q, r, 1] for r in range(0, 2))",
       [](Index, Index, Index q, Index k) { return (q / 2 <= k && k < q / 2 + 9) || (160 - q <= k && k < 170 - q); }}};
  oracle::Problem problem = random_problem(shape, DType::f32, 1);
  for (const MaskCase& one : cases) {
    SCOPED_TRACE(one.text);
    const BoundProgram mask = bound_program(one.text, true, tensors);
    problem.visible = one.visible;
    expect_reference(problem, &mask, nullptr, {});
  }
}

TEST(Attention, ReadsNothingOfItsWorkspaceButThePlanThatIsMade) {
  const AttentionShape shape{2, 4, 2, 150, 170, 32, 48};
  std::vector<std::int32_t> document = documents(170, 47);
  const BoundProgram mask = bound_program("(doc[q] == doc[k]) & (q >= k)", true,
                                          {{"doc", TensorView::contiguous(document.data(), DType::i32, {170})}});
  oracle::Problem problem = random_problem(shape, DType::f32, 5);
  problem.visible = [&](Index, Index, Index q, Index k) {
    return document[static_cast<std::size_t>(q)] == document[static_cast<std::size_t>(k)] && q >= k;
  };
  expect_reference(problem, &mask, nullptr, {.plan_first = true});
}

TEST(Attention, EqualsTheReferenceWithoutAMask) {
  for (const AttentionShape& shape :
       {AttentionShape{1, 1, 1, 1, 1, 1, 1}, AttentionShape{1, 2, 2, 64, 64, 64, 64},
        AttentionShape{1, 3, 1, 65, 63, 17, 5}, AttentionShape{2, 6, 3, 129, 1, 40, 72},
        AttentionShape{1, 7, 1, 33, 300, 128, 64}, AttentionShape{1, 1, 1, 17, 127, 192, 128},
        AttentionShape{1, 2, 1, 70, 130, 256, 256}, AttentionShape{3, 2, 2, 5, 16, 72, 104}}) {
    SCOPED_TRACE(shape.head_dim_qk);
    expect_reference(random_problem(shape, DType::f32, 2), nullptr, nullptr, {});
  }
}

TEST(Attention, EqualsTheReferenceInEveryDtypeAndLayout) {
  const BoundProgram mask = bound_program("q + kv_len - q_len >= k", true);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const bool head_inside : {false, true}) {
      for (const int head_dim : {64, 40}) {
        SCOPED_TRACE(std::string(to_string(dtype)) + (head_inside ? " BSHD" : " BHSD"));
        const AttentionShape shape{2, 4, 2, 100, 140, head_dim, head_dim - 8};
        RunOptions options;
        options.dtype = dtype;
        options.head_inside = head_inside;
        oracle::Problem problem = random_problem(shape, dtype, 3);
        problem.visible = [](Index, Index, Index q, Index k) { return q + 40 >= k; };
        expect_reference(problem, &mask, nullptr, options);
      }
    }
  }
}

TEST(Attention, EqualsTheReferenceForEveryTile) {
  const BoundProgram mask = bound_program("(q - k) % 2 == 0 or q >= k + 90", true);
  for (const int block : {16, 32, 48, 96, 128, 256}) {
    SCOPED_TRACE(block);
    RunOptions options;
    options.block_m = block;
    options.block_n = 272 - block;
    oracle::Problem problem = random_problem({1, 2, 1, 200, 180, 24, 32}, DType::f32, 4);
    problem.visible = [](Index, Index, Index q, Index k) { return (q + k) % 2 == 0 || q >= k + 90; };
    expect_reference(problem, &mask, nullptr, options);
  }
}

TEST(Attention, TakesAnEmptyQueryOrKeySide) {
  const BoundProgram mask = bound_program("q >= k", true);
  for (const BoundProgram* chosen : {static_cast<const BoundProgram*>(nullptr), &mask}) {
    const oracle::Answer no_keys =
        run_attention(random_problem({1, 2, 1, 20, 0, 16, 16}, DType::f32, 5), chosen, nullptr);
    EXPECT_TRUE(oracle::all_equal("out", no_keys.out, 0));
    EXPECT_TRUE(oracle::all_equal("lse", no_keys.lse, -std::numeric_limits<double>::infinity()));
    EXPECT_TRUE(oracle::all_equal("query_gradient", no_keys.query_gradient, 0));
    const oracle::Answer no_queries =
        run_attention(random_problem({1, 2, 1, 0, 20, 16, 16}, DType::f32, 5), chosen, nullptr);
    EXPECT_TRUE(oracle::all_equal("key_gradient", no_queries.key_gradient, 0));
    EXPECT_TRUE(oracle::all_equal("value_gradient", no_queries.value_gradient, 0));
  }
}

TEST(Attention, DifferentiatesThroughTheLse) {
  const BoundProgram mask = bound_program("q >= k - 3", true);
  oracle::Problem problem = random_problem({1, 4, 2, 90, 100, 32, 32}, DType::f32, 6);
  problem.visible = [](Index, Index, Index q, Index k) { return q >= k - 3; };
  problem.lse_gradient = oracle::random_tensor(1, 4, 90, 1, oracle::Format::f32, 7);
  expect_reference(problem, &mask, nullptr, {});
}

TEST(Attention, GivesTheSameOutputWithoutAnLse) {
  const oracle::Problem problem = random_problem({1, 2, 2, 70, 70, 32, 32}, DType::bf16, 8);
  RunOptions options;
  options.dtype = DType::bf16;
  const oracle::Answer with_lse = run_attention(problem, nullptr, nullptr, options);
  options.give_lse = false;
  EXPECT_TRUE(oracle::same_bits("out", run_attention(problem, nullptr, nullptr, options).out, with_lse.out));
}

TEST(Attention, AppliesScoreProgramsInBothDirections) {
  const AttentionShape shape{2, 4, 2, 80, 100, 32, 32};
  oracle::Problem problem = random_problem(shape, DType::f32, 9);
  const BoundProgram mask = bound_program("q + 20 >= k", true);
  problem.visible = [](Index, Index, Index q, Index k) { return q + 20 >= k; };

  const BoundProgram softcap = bound_program("2.0 * tanh(score / 2.0)", false);
  problem.score = {{[](double s, auto, auto, auto, auto) { return 2 * std::tanh(s / 2); },
                    [](double s, auto, auto, auto, auto) { return 1 - std::pow(std::tanh(s / 2), 2); }}};
  expect_reference(problem, &mask, &softcap, {});

  oracle::RandomNumbers random(10);
  std::vector<float> slopes(4);
  for (float& slope : slopes) slope = static_cast<float>(random.uniform());
  const BoundProgram alibi = bound_program("score - slope[h] * float(abs(q - k))", false,
                                           {{"slope", TensorView::contiguous(slopes.data(), DType::f32, {4})}});
  problem.score = {{[&](double s, auto, Index h, Index q, Index k) {
                      return s - slopes[static_cast<std::size_t>(h)] * std::abs(static_cast<double>(q - k));
                    },
                    [](double, auto, auto, auto, auto) { return 1.0; }}};
  expect_reference(problem, &mask, &alibi, {});
}

TEST(Attention, GivesNoGradientToScoresThatAreReplaced) {
  std::vector<float> bias(256);
  oracle::RandomNumbers random(11);
  for (float& value : bias) value = static_cast<float>(random.normal());
  const BoundProgram replaced =
      bound_program("bias[q - k + 128]", false, {{"bias", TensorView::contiguous(bias.data(), DType::f32, {256})}});
  oracle::Problem problem = random_problem({1, 1, 1, 65, 65, 32, 32}, DType::f32, 12);
  problem.score = {{[&](double, auto, auto, Index q, Index k) {
                      return static_cast<double>(bias[static_cast<std::size_t>(q - k + 128)]);
                    },
                    [](double, auto, auto, auto, auto) { return 0.0; }}};
  const oracle::Answer ours = run_attention(problem, nullptr, &replaced);
  EXPECT_TRUE(oracle::all_equal("query_gradient", ours.query_gradient, 0));
  EXPECT_TRUE(oracle::all_equal("key_gradient", ours.key_gradient, 0));
  expect_reference(problem, nullptr, &replaced, {});
}

TEST(Attention, GivesNoGradientToTheScoreOfALoneKey) {
  // One visible key: out = v, so dO . v - rowsum(dO * out) is zero, and must be so exactly.
  for (const DType dtype : {DType::f32, DType::bf16}) {
    RunOptions options;
    options.dtype = dtype;
    const oracle::Problem problem = random_problem({3, 4, 2, 1, 1, 128, 100}, dtype, 15);
    const oracle::Answer ours = run_attention(problem, nullptr, nullptr, options);
    EXPECT_TRUE(oracle::all_equal("query_gradient", ours.query_gradient, 0));
    EXPECT_TRUE(oracle::all_equal("key_gradient", ours.key_gradient, 0));
    for (Index b = 0; b < 3; ++b) {
      for (Index h = 0; h < 4; ++h) {
        for (Index d = 0; d < 100; ++d) EXPECT_EQ(ours.out.at(b, h, 0, d), problem.value.at(b, h / 2, 0, d));
      }
    }
  }
}

TEST(Attention, IsShiftInvariantForLargeScores) {
  oracle::Problem problem = random_problem({1, 1, 1, 3, 100, 128, 16}, DType::f32, 13, false);
  for (const double score : {-2.45e5, 2.45e5}) {
    for (double& value : problem.query.values) value = 1;
    for (double& value : problem.key.values) value = score / 128;
    const oracle::Answer ours = run_attention(problem, nullptr, nullptr);
    const oracle::Answer reference = oracle::reference_attention(problem);
    EXPECT_TRUE(oracle::near("out", ours.out, reference.out, 1e-6));
    EXPECT_TRUE(oracle::near("lse", ours.lse, reference.lse, std::abs(score) * 1e-6));
  }
}

TEST(Attention, DoesNotDependOnTheNumberOfThreads) {
  const AttentionShape shape{1, 4, 2, 260, 300, 48, 32};
  const BoundProgram mask = bound_program("(q - 100 <= k) & (k <= q)", true);
  const oracle::Problem problem = random_problem(shape, DType::f32, 14);
  RunOptions options;
  options.threads = 1;
  const oracle::Answer one = run_attention(problem, &mask, nullptr, options);
  // With more threads than key heads the backward takes the way of two passes.
  for (const int threads : {2, 3, 7}) {
    options.threads = threads;
    EXPECT_TRUE(oracle::same_bits(one, run_attention(problem, &mask, nullptr, options))) << threads;
  }
}

}  // namespace
}  // namespace flashspan::cpu_test
