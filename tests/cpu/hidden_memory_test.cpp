// NaN and infinity: what is masked or out of length never shows, what is visible shows in exactly the rows that see it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attention_run.hpp"
#include "oracle/pass_rule.hpp"
#include "problems.hpp"

namespace flashspan::cpu_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

void fill_row(oracle::Tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t row, double value) {
  for (std::int64_t d = 0; d < tensor.columns; ++d) tensor.at(b, h, row, d) = value;
}

bool row_is_nan(const oracle::Tensor& tensor, std::int64_t b, std::int64_t h, std::int64_t row) {
  for (std::int64_t d = 0; d < tensor.columns; ++d) {
    if (!std::isnan(tensor.at(b, h, row, d))) return false;
  }
  return true;
}

// Keys that nobody sees: any value there gives the bits of zeros there, and gradients of zero.
void expect_hidden(const AttentionShape& shape, const BoundProgram& mask, const std::vector<std::int64_t>& keys,
                   DType dtype) {
  oracle::Problem problem = random_problem(shape, dtype, 21);
  RunOptions options;
  options.dtype = dtype;
  oracle::Answer with_zeros;
  for (const double value : {0.0, not_a_number, infinity, -infinity}) {
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t h = 0; h < shape.kv_heads; ++h) {
        for (const std::int64_t key : keys) {
          fill_row(problem.key, b, h, key, value);
          fill_row(problem.value, b, h, key, value);
        }
      }
    }
    const oracle::Answer ours = run_attention(problem, &mask, nullptr, options);
    if (value == 0.0) with_zeros = ours;
    EXPECT_TRUE(oracle::same_bits(ours, with_zeros)) << value;
    for (const std::int64_t key : keys) {
      for (std::int64_t d = 0; d < shape.head_dim_qk; ++d) EXPECT_EQ(ours.key_gradient.at(0, 0, key, d), 0);
      for (std::int64_t d = 0; d < shape.head_dim_v; ++d) EXPECT_EQ(ours.value_gradient.at(0, 0, key, d), 0);
    }
  }
}

TEST(HiddenMemory, KeysPastTheUsedLengthDoNotShow) {
  const BoundProgram mask = bound_program("k < 70", true);
  std::vector<std::int64_t> keys;
  for (std::int64_t k = 70; k < 130; ++k) keys.push_back(k);
  for (const DType dtype : {DType::f32, DType::bf16}) expect_hidden({1, 2, 1, 40, 130, 32, 40}, mask, keys, dtype);
}

TEST(HiddenMemory, KeysOutsideEveryWindowDoNotShow) {
  const BoundProgram mask = bound_program("(q * 4 - 3 <= k) & (k <= q * 4)", true);
  std::vector<std::int64_t> keys;
  for (std::int64_t k = 1; k < 240; ++k) {
    if (k > 156) keys.push_back(k);
  }
  expect_hidden({1, 2, 2, 40, 240, 16, 16}, mask, keys, DType::f32);
  const BoundProgram even = bound_program("k % 2 == 0", true);
  expect_hidden({2, 2, 1, 50, 70, 16, 16}, even, {1, 3, 31, 69}, DType::f32);
}

TEST(HiddenMemory, AVisibleNanKeyShowsInExactlyTheRowsThatSeeIt) {
  const BoundProgram mask = bound_program("q >= k", true);
  const oracle::Problem clean = random_problem({1, 2, 1, 100, 100, 16, 16}, DType::f32, 22);
  const oracle::Answer expected = run_attention(clean, &mask, nullptr);
  for (const bool in_value : {false, true}) {
    oracle::Problem problem = clean;
    fill_row(in_value ? problem.value : problem.key, 0, 0, 30, not_a_number);
    const oracle::Answer ours = run_attention(problem, &mask, nullptr);
    for (std::int64_t q = 0; q < 100; ++q) {
      EXPECT_EQ(row_is_nan(ours.out, 0, 1, q), q >= 30) << q;
      EXPECT_EQ(row_is_nan(ours.query_gradient, 0, 1, q), q >= 30) << q;
      EXPECT_EQ(std::isnan(ours.lse.at(0, 1, q)), q >= 30 && !in_value) << q;
      if (q >= 30) continue;
      for (std::int64_t d = 0; d < 16; ++d) EXPECT_EQ(ours.out.at(0, 1, q, d), expected.out.at(0, 1, q, d));
    }
  }
}

TEST(HiddenMemory, ANanQueryShowsInItsOwnRow) {
  oracle::Problem problem = random_problem({2, 4, 4, 16, 16, 8, 8}, DType::f32, 23);
  const oracle::Answer expected = run_attention(problem, nullptr, nullptr);
  fill_row(problem.query, 0, 0, 3, not_a_number);
  const oracle::Answer ours = run_attention(problem, nullptr, nullptr);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 4; ++h) {
      for (std::int64_t q = 0; q < 16; ++q) {
        const bool hit = b == 0 && h == 0 && q == 3;
        EXPECT_EQ(row_is_nan(ours.out, b, h, q), hit);
        EXPECT_EQ(std::isnan(ours.lse.at(b, h, q)), hit);
        for (std::int64_t d = 0; !hit && d < 8; ++d) EXPECT_EQ(ours.out.at(b, h, q, d), expected.out.at(b, h, q, d));
      }
    }
  }
}

TEST(HiddenMemory, NanGradientsAndQueriesReachOnlyTheKeysTheySee) {
  // Row 10 sees keys up to 10 only; its query and its incoming gradient are NaN in turn.
  const BoundProgram mask = bound_program("q >= k", true);
  const oracle::Problem clean = random_problem({1, 1, 1, 100, 100, 16, 16}, DType::f32, 24);
  const oracle::Answer expected = run_attention(clean, &mask, nullptr);
  for (const bool in_query : {false, true}) {
    oracle::Problem problem = clean;
    fill_row(in_query ? problem.query : *problem.out_gradient, 0, 0, 10, not_a_number);
    const oracle::Answer ours = run_attention(problem, &mask, nullptr);
    for (std::int64_t k = 0; k < 100; ++k) {
      EXPECT_EQ(row_is_nan(ours.key_gradient, 0, 0, k), k <= 10) << k;
      EXPECT_EQ(row_is_nan(ours.value_gradient, 0, 0, k), k <= 10) << k;
      for (std::int64_t d = 0; k > 10 && d < 16; ++d) {
        EXPECT_EQ(ours.key_gradient.at(0, 0, k, d), expected.key_gradient.at(0, 0, k, d));
        EXPECT_EQ(ours.value_gradient.at(0, 0, k, d), expected.value_gradient.at(0, 0, k, d));
      }
    }
  }
}

TEST(HiddenMemory, ARowThatSeesNothingTakesNoGradientWhateverComesIn) {
  const BoundProgram mask = bound_program("(q >= k) & (q != 20)", true);
  oracle::Problem problem = random_problem({1, 1, 1, 90, 90, 16, 16}, DType::f32, 25);
  const oracle::Answer expected = run_attention(problem, &mask, nullptr);
  fill_row(*problem.out_gradient, 0, 0, 20, not_a_number);
  fill_row(problem.query, 0, 0, 20, infinity);
  EXPECT_TRUE(oracle::same_bits(expected, run_attention(problem, &mask, nullptr)));
  EXPECT_EQ(expected.lse.at(0, 0, 20), -infinity);
}

TEST(HiddenMemory, ARowWhoseScoresAreAllMinusInfinityIsEmpty) {
  const BoundProgram score = bound_program("where(q == 20, log(0.0), score)", false);
  oracle::Problem problem = random_problem({1, 1, 1, 70, 128, 16, 16}, DType::f32, 26);
  fill_row(*problem.out_gradient, 0, 0, 20, not_a_number);
  const oracle::Answer ours = run_attention(problem, nullptr, &score);
  EXPECT_EQ(ours.lse.at(0, 0, 20), -infinity);
  for (std::int64_t d = 0; d < 16; ++d) {
    EXPECT_EQ(ours.out.at(0, 0, 20, d), 0);
    EXPECT_EQ(ours.query_gradient.at(0, 0, 20, d), 0);
  }
  fill_row(*problem.out_gradient, 0, 0, 20, 0);
  problem.visible = [](auto, auto, oracle::Index q, auto) { return q != 20; };
  const oracle::Answer reference = oracle::reference_attention(problem);
  EXPECT_TRUE(oracle::near("key_gradient", ours.key_gradient, reference.key_gradient, 1e-5));
  EXPECT_TRUE(oracle::near("value_gradient", ours.value_gradient, reference.value_gradient, 1e-5));
}

}  // namespace
}  // namespace flashspan::cpu_test
