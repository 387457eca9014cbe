// Gradients of looked-up tensors, the emitted kernels run on the host by the emulator, against the fp64 oracle.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernel/emulator/emulated_attention.hpp"
#include "tests/oracle/pass_rule.hpp"

namespace flashspan::test {
namespace {

using oracle::Format;
using oracle::Index;
using oracle::TakeSlope;

/// A call of looked_up_scores under a causal mask, with its tables.
class Call {
 public:
  explicit Call(const Sizes& sizes, DType dtype = DType::bf16)
      : factor(static_cast<std::size_t>(sizes.query_heads)),
        bias(static_cast<std::size_t>(sizes.query_heads * 30)),
        pairs(static_cast<std::size_t>(pair_rows(sizes) * pair_columns(sizes))),
        of_key(static_cast<std::size_t>(sizes.batch * sizes.kv_len)),
        of_query(static_cast<std::size_t>(sizes.q_len)) {
    fill_tables();
    EmulatedCall& call = emulated;
    call.spec.dtype = dtype;
    call.spec.score = &cuda::looked_up_scores;
    call.spec.score_gradients = "factor,bias,pairs,of_key,of_query";
    const Format format = dtype == DType::f16 ? Format::f16 : Format::bf16;
    std::uint64_t seed = 1;
    const auto random = [&](Index heads, Index rows, Index columns) {
      return oracle::random_tensor(sizes.batch, heads, rows, columns, format, seed++);
    };
    call.problem.query = random(sizes.query_heads, sizes.q_len, sizes.head_dim);
    call.problem.key = random(sizes.kv_heads, sizes.kv_len, sizes.head_dim);
    call.problem.value = random(sizes.kv_heads, sizes.kv_len, sizes.head_dim_v);
    call.problem.out_gradient = random(sizes.query_heads, sizes.q_len, sizes.head_dim_v);
    call.problem.lse_gradient =
        oracle::random_tensor(sizes.batch, sizes.query_heads, sizes.q_len, 1, Format::f32, seed);
    call.problem.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(sizes.head_dim)));
    const Index offset = sizes.kv_len - sizes.q_len;
    call.problem.visible = [offset](Index, Index, Index q, Index k) { return q + offset >= k; };
    const Index heads = sizes.query_heads;
    call.score_bindings.tensors = {
        TensorView::contiguous(factor.data(), DType::f32, {heads}),
        TensorView::contiguous(bias.data(), DType::bf16, {heads, 30}),
        TensorView::contiguous(pairs.data(), DType::f32, {pair_rows(sizes), pair_columns(sizes)}),
        TensorView::contiguous(of_key.data(), DType::f32, {sizes.batch, sizes.kv_len}),
        TensorView::contiguous(of_query.data(), DType::f16, {sizes.q_len})};
    call.score_gradients = {
        {heads}, {heads, 30}, {pair_rows(sizes), pair_columns(sizes)}, {sizes.batch, sizes.kv_len}, {sizes.q_len}};
    call.problem.score_tensors = {heads, heads * 30, pair_rows(sizes) * pair_columns(sizes), sizes.batch * sizes.kv_len,
                                  sizes.q_len};
    describe_score(sizes.kv_len, pair_columns(sizes));
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void expect_passes() {
    const Format format = emulated.spec.dtype == DType::f16 ? Format::f16 : Format::bf16;
    for (const bool deterministic : {false, true}) {
      SCOPED_TRACE(deterministic ? "deterministic" : "in any order");
      emulated.deterministic = deterministic;
      const auto run = run_emulated(emulated);
      ASSERT_TRUE(run) << run.error().message();
      EXPECT_TRUE(oracle::passes(run->answer, oracle::reference_attention(emulated.problem),
                                 oracle::plain_attention(emulated.problem, format), format));
      EXPECT_EQ(run->bank_conflicts, 0);
    }
  }

  EmulatedCall emulated;

 private:
  void fill_tables() {
    for (std::size_t i = 0; i < factor.size(); ++i) factor[i] = 0.5F + 0.25F * static_cast<float>(i);
    for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = oracle::to_bf16(std::sin(static_cast<float>(i)));
    for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i] = std::sin(2 * static_cast<float>(i));
    for (std::size_t i = 0; i < of_key.size(); ++i) of_key[i] = std::cos(static_cast<float>(i));
    for (std::size_t i = 0; i < of_query.size(); ++i) of_query[i] = oracle::to_f16(static_cast<float>(i % 5));
  }
  static Index pair_rows(const Sizes& sizes) { return (sizes.q_len + 1) / 2; }
  static Index pair_columns(const Sizes& sizes) { return (sizes.kv_len + 1) / 2; }

  /// bias is 0 outside its 30 distances.
  void describe_score(Index kv_len, Index columns) {
    const auto near = [](Index q, Index k) { return 0 <= q - k && q - k < 30; };
    const auto at = [](const auto& table, Index i) { return table[static_cast<std::size_t>(i)]; };
    emulated.problem.score = oracle::ScoreFunction{
        [=, this](double score, Index b, Index h, Index q, Index k) {
          return score * static_cast<double>(at(factor, h)) +
                 (near(q, k) ? static_cast<double>(oracle::from_bf16(at(bias, h * 30 + q - k))) : 0.0) +
                 static_cast<double>(at(pairs, q / 2 * columns + k / 2)) +
                 static_cast<double>(at(of_key, b * kv_len + k)) +
                 static_cast<double>(oracle::from_f16(at(of_query, q)));
        },
        [=, this](double, Index, Index h, Index, Index) { return static_cast<double>(at(factor, h)); },
        [=](double score, Index b, Index h, Index q, Index k, const TakeSlope& take) {
          take(0, h, score);
          if (near(q, k)) take(1, h * 30 + q - k, 1);
          take(2, q / 2 * columns + k / 2, 1);
          take(3, b * kv_len + k, 1);
          take(4, q, 1);
        }};
  }

  std::vector<float> factor;
  std::vector<std::uint16_t> bias;
  std::vector<float> pairs;
  std::vector<float> of_key;
  std::vector<std::uint16_t> of_query;
};

TEST(EmulatedScoreGradients, OfEveryKindOfLookupWithRowsThatSeeNothing) {
  Call({2, 4, 2, 150, 100, 64, 64}, DType::f16).expect_passes();
}

TEST(EmulatedScoreGradients, WithoutAMaskAndUnaligned) {
  Call call({1, 2, 1, 67, 40, 40, 72});
  call.emulated.spec.mask = nullptr;
  call.emulated.spec.aligned = false;
  call.emulated.problem.visible = nullptr;
  call.expect_passes();
}

TEST(EmulatedScoreGradients, WideHeadsAndSmallTiles) {
  Call call({1, 1, 1, 50, 50, 256, 256});
  call.emulated.spec.arch = {86, 0};
  call.expect_passes();
}

TEST(EmulatedScoreGradients, OfOneTensorAloneWithInfinitiesAndNanInBothModes) {
  Call call({1, 1, 1, 40, 40, 64, 64});
  oracle::Tensor& lse_gradient = *call.emulated.problem.lse_gradient;
  lse_gradient.at(0, 0, 10) = HUGE_VAL;
  lse_gradient.at(0, 0, 20) = -HUGE_VAL;
  lse_gradient.at(0, 0, 30) = std::nan("");
  call.emulated.spec.score_gradients = "of_query";
  call.emulated.score_gradients = {{40}};
  call.emulated.problem.score_tensors = {40};
  for (const bool deterministic : {false, true}) {
    call.emulated.deterministic = deterministic;
    const auto run = run_emulated(call.emulated);
    ASSERT_TRUE(run) << run.error().message();
    for (Index q = 0; q < 40; ++q) {
      const double got = run->answer.score_gradients[0].at(0, 0, 0, q);
      if (q == 10) {
        EXPECT_EQ(got, HUGE_VAL);
      } else if (q == 20) {
        EXPECT_EQ(got, -HUGE_VAL);
      } else {
        EXPECT_EQ(std::isnan(got), q == 30) << q;
        EXPECT_TRUE(q == 30 || std::isfinite(got)) << q;
      }
    }
  }
}

}  // namespace
}  // namespace flashspan::test
