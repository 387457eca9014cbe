// The emitted kernels, run on the host by the emulator, against the fp64 oracle: both directions and the planner.
#include "tests/kernel/emulator/emulated_attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/oracle/pass_rule.hpp"

namespace flashspan::test {
namespace {

using oracle::Format;
using oracle::Index;
using oracle::Tensor;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

oracle::Problem random_problem(const Sizes& sizes, Format format, std::uint64_t seed = 1) {
  const auto random = [&](Index heads, Index rows, Index columns) {
    return oracle::random_tensor(sizes.batch, heads, rows, columns, format, seed++);
  };
  oracle::Problem problem;
  problem.query = random(sizes.query_heads, sizes.q_len, sizes.head_dim);
  problem.key = random(sizes.kv_heads, sizes.kv_len, sizes.head_dim);
  problem.value = random(sizes.kv_heads, sizes.kv_len, sizes.head_dim_v);
  problem.out_gradient = random(sizes.query_heads, sizes.q_len, sizes.head_dim_v);
  problem.lse_gradient = oracle::random_tensor(sizes.batch, sizes.query_heads, sizes.q_len, 1, Format::f32, seed + 100);
  problem.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(sizes.head_dim)));
  return problem;
}

oracle::Visible causal_visible(Index q_len, Index kv_len) {
  return [=](Index, Index, Index q, Index k) { return q + kv_len - q_len >= k; };
}

void expect_passes(const EmulatedCall& call) {
  const Format format = call.spec.dtype == DType::f16 ? Format::f16 : Format::bf16;
  const auto run = run_emulated(call);
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_TRUE(oracle::passes(run->answer, oracle::reference_attention(call.problem),
                             oracle::plain_attention(call.problem, format), format));
  EXPECT_EQ(run->bank_conflicts, 0);
}

TEST(EmulatedAttention, CausalWithGroupedHeadsAndTails) {
  EmulatedCall call;
  call.problem = random_problem({2, 4, 2, 100, 150, 64, 64}, Format::bf16);
  call.problem.visible = causal_visible(100, 150);
  expect_passes(call);
}

TEST(EmulatedAttention, MoreQueriesThanKeysLeavesRowsEmpty) {
  EmulatedCall call;
  call.spec.dtype = DType::f16;
  call.problem = random_problem({1, 2, 1, 150, 70, 64, 64}, Format::f16);
  call.problem.visible = causal_visible(150, 70);
  expect_passes(call);
}

TEST(EmulatedAttention, OneInterpretedKernelServesEveryMask) {
  std::vector<std::int32_t> documents(100);
  for (std::size_t i = 0; i < documents.size(); ++i) documents[i] = i < 30 ? 0 : i < 70 ? 1 : 2;
  const TensorView view = TensorView::contiguous(documents.data(), DType::i32, {1, 100});
  EmulatedCall call;
  call.spec.lowering = mask::LoweringKind::interpreted;
  call.problem = random_problem({1, 4, 2, 100, 100, 64, 64}, Format::bf16);
  call.problem.visible = causal_visible(100, 100);
  expect_passes(call);
  call.spec.mask = &cuda::causal_documents;
  call.mask_bindings.tensors = {view};
  call.problem.visible = [&](Index, Index, Index q, Index k) {
    return q >= k && documents[static_cast<std::size_t>(q)] == documents[static_cast<std::size_t>(k)];
  };
  expect_passes(call);
  call.spec.mask = nullptr;
  call.mask_bindings = {};
  call.problem.visible = {};
  expect_passes(call);
}

/// Of those that the resource model offers, some far from the default.
TEST(EmulatedAttention, TheTileChangesNoResult) {
  const std::pair<TileConfig, TileConfig> tiles[]{{{64, 96, 4, 3}, {32, 32, 2, 1}},
                                                  {{128, 32, 8, 2}, {128, 128, 8, 1}}};
  for (const auto& [forward, backward] : tiles) {
    SCOPED_TRACE(to_string(forward) + " and " + to_string(backward));
    EmulatedCall call;
    call.spec.forward_tile = forward;
    call.spec.backward_tile = backward;
    call.problem = random_problem({1, 1, 1, 70, 140, 32, 32}, Format::bf16);
    call.problem.visible = causal_visible(70, 140);
    expect_passes(call);
  }
}

TEST(EmulatedAttention, NoMaskTakesNoPlan) {
  EmulatedCall call;
  call.spec.mask = nullptr;
  call.problem = random_problem({1, 3, 1, 67, 129, 128, 128}, Format::bf16);
  expect_passes(call);
}

TEST(EmulatedAttention, UnalignedRowsAndUnequalHeadDims) {
  for (const auto& [head_dim, head_dim_v] : {std::pair<Index, Index>{40, 72}, {104, 24}}) {
    EmulatedCall call;
    call.spec.aligned = false;
    call.problem = random_problem({1, 2, 2, 33, 65, head_dim, head_dim_v}, Format::bf16);
    call.problem.visible = causal_visible(33, 65);
    expect_passes(call);
  }
}

TEST(EmulatedAttention, WideHeadsAreSplitOverColumnGroups) {
  for (const auto& [head_dim, head_dim_v] : {std::pair<Index, Index>{192, 128}, {208, 104}, {256, 256}}) {
    EmulatedCall call;
    call.problem = random_problem({1, 1, 1, 70, 70, head_dim, head_dim_v}, Format::bf16);
    call.problem.visible = causal_visible(70, 70);
    expect_passes(call);
  }
}

TEST(EmulatedAttention, SmallTilesOfSmallArchitectures) {
  EmulatedCall call;
  call.spec.arch = {86, 0};
  call.spec.dtype = DType::f16;
  call.problem = random_problem({1, 1, 1, 80, 50, 256, 256}, Format::f16);
  call.problem.visible = causal_visible(80, 50);
  expect_passes(call);
}

TEST(EmulatedAttention, LengthsAroundZeroAndTheTile) {
  for (const auto& [q_len, kv_len] : {std::pair<Index, Index>{1, 1}, {1, 129}, {17, 0}, {128, 64}, {129, 63}, {0, 5}}) {
    EmulatedCall call;
    call.problem = random_problem({1, 2, 1, q_len, kv_len, 16, 16}, Format::bf16);
    call.problem.visible = causal_visible(q_len, kv_len);
    expect_passes(call);
  }
}

TEST(EmulatedAttention, SinksOfHeadsWhoseFirstRowsSeeNothing) {
  EmulatedCall call;
  call.problem = random_problem({2, 4, 2, 150, 70, 64, 64}, Format::bf16);
  call.problem.visible = causal_visible(150, 70);
  call.problem.sink = oracle::random_tensor(1, 4, 1, 1, Format::f32, 50);
  call.problem.sink->at(0, 2, 0) = 9;
  expect_passes(call);
}

TEST(EmulatedAttention, AnInfiniteSinkTakesAllWeightOrNone) {
  EmulatedCall call;
  call.spec.mask = nullptr;
  call.problem = random_problem({1, 2, 1, 40, 70, 64, 64}, Format::bf16);
  const auto without = run_emulated(call);
  call.problem.sink = Tensor(1, 2, 1, 1, -HUGE_VAL);
  call.problem.sink->at(0, 1, 0) = HUGE_VAL;
  const auto run = run_emulated(call);
  ASSERT_TRUE(run && without);
  double lse_gradients = 0;
  for (Index q = 0; q < 40; ++q) {
    EXPECT_EQ(run->answer.lse.at(0, 0, q), without->answer.lse.at(0, 0, q));
    EXPECT_EQ(run->answer.lse.at(0, 1, q), HUGE_VAL);
    for (Index d = 0; d < 64; ++d) {
      EXPECT_EQ(run->answer.out.at(0, 0, q, d), without->answer.out.at(0, 0, q, d));
      EXPECT_EQ(run->answer.out.at(0, 1, q, d), 0.0);
      EXPECT_EQ(run->answer.query_gradient.at(0, 0, q, d), without->answer.query_gradient.at(0, 0, q, d));
      EXPECT_EQ(run->answer.query_gradient.at(0, 1, q, d), 0.0);
    }
    lse_gradients += call.problem.lse_gradient->at(0, 1, q);
  }
  EXPECT_EQ(run->answer.sink_gradient.at(0, 0, 0), 0.0);
  EXPECT_NEAR(run->answer.sink_gradient.at(0, 1, 0), lse_gradients, 1e-5);
}

/// Documents of random lengths, per batch.
struct Documents {
  Documents(Index batch, Index length) : ids(static_cast<std::size_t>(batch * length)), length_(length) {
    for (Index b = 0; b < batch; ++b) {
      for (Index i = 0; i < length; ++i) {
        ids[static_cast<std::size_t>(b * length + i)] = static_cast<std::int32_t>((i + 37 * b) / (b == 0 ? 50 : 21));
      }
    }
    bindings.tensors = {TensorView::contiguous(ids.data(), DType::i32, {batch, length})};
  }
  [[nodiscard]] oracle::Visible causal() const {
    return [this](Index b, Index, Index q, Index k) {
      return q >= k && ids[static_cast<std::size_t>(b * length_ + q)] == ids[static_cast<std::size_t>(b * length_ + k)];
    };
  }
  std::vector<std::int32_t> ids;
  mask::Bindings bindings;

 private:
  Index length_;
};

TEST(EmulatedAttention, CausalDocumentsWithAScore) {
  Documents documents(2, 180);
  std::array<float, 2> slopes{0.02F, -0.1F};
  EmulatedCall call;
  call.spec.mask = &cuda::causal_documents;
  call.spec.score = &cuda::softcap_and_alibi;
  call.problem = random_problem({2, 2, 1, 180, 180, 64, 64}, Format::bf16);
  call.problem.visible = documents.causal();
  call.mask_bindings = documents.bindings;
  constexpr double cap = 1.5;
  call.score_bindings.scalars = {{0, static_cast<float>(cap)}};
  call.score_bindings.tensors = {TensorView::contiguous(slopes.data(), DType::f32, {2})};
  call.problem.score = oracle::ScoreFunction{
      [&](double score, Index, Index h, Index q, Index k) {
        return cap * std::tanh(score / cap) +
               static_cast<double>(slopes[static_cast<std::size_t>(h)]) * static_cast<double>(k - q);
      },
      [&](double score, Index, Index, Index, Index) { return 1 - std::pow(std::tanh(score / cap), 2); }};
  expect_passes(call);
}

TEST(EmulatedAttention, KeyRangesOfVeryDifferentWidths) {
  // Key ranges, two a row, of very different widths; rows without any.
  constexpr Index q_len = 200;
  constexpr Index kv_len = 300;
  std::vector<std::int32_t> ranges;
  for (std::int32_t q = 0; q < q_len; ++q) {
    const bool none = q % 64 > 50;
    ranges.insert(ranges.end(), {q / 2, none ? q / 2 : q / 2 + 3, 200 + q / 100 * 40, none ? 0 : 260});
  }
  static const cuda::ProgramText two_ranges{
      "any((ranges[q, r, 0] <= k) & (k < ranges[q, r, 1]) for r in range(0, 2)) & (h == 0 or k != 7)",
      {},
      {{"ranges", DType::i32, 3}}};
  EmulatedCall call;
  call.spec.mask = &two_ranges;
  call.problem = random_problem({1, 2, 1, q_len, kv_len, 16, 16}, Format::bf16);
  call.mask_bindings.tensors = {TensorView::contiguous(ranges.data(), DType::i32, {q_len, 2, 2})};
  call.problem.visible = [&](Index, Index h, Index q, Index k) {
    const std::int32_t* const row = ranges.data() + q * 4;
    return ((row[0] <= k && k < row[1]) || (row[2] <= k && k < row[3])) && (h == 0 || k != 7);
  };
  expect_passes(call);
}

/// A window of ten keys: in a tile, most keys are hidden from most rows.
EmulatedCall window_call() {
  static const cuda::ProgramText window{"(k <= q) & (q < k + 10)", {}, {}};
  EmulatedCall call;
  call.spec.mask = &window;
  call.problem = random_problem({1, 1, 1, 150, 150, 64, 64}, Format::bf16);
  call.problem.visible = [](Index, Index, Index q, Index k) { return k <= q && q < k + 10; };
  return call;
}

TEST(EmulatedAttention, HiddenNanAndInfinityHaveNoInfluence) {
  EmulatedCall clean = window_call();
  // Nobody sees the keys 20 .. 29 if these rows are taken out.
  static const cuda::ProgramText window{"(k <= q) & (q < k + 10) & ((k < 20) | (k >= 30)) & (q != 77)", {}, {}};
  clean.spec.mask = &window;
  clean.problem.visible = [](Index, Index, Index q, Index k) {
    return k <= q && q < k + 10 && (k < 20 || k >= 30) && q != 77;
  };
  EmulatedCall dirty = clean;
  for (const double poison : {not_a_number, HUGE_VAL, -HUGE_VAL}) {
    for (Index d = 0; d < 64; ++d) {
      for (Index k = 20; k < 30; ++k) {
        clean.problem.key.at(0, 0, k, d) = clean.problem.value.at(0, 0, k, d) = 0;
        dirty.problem.key.at(0, 0, k, d) = dirty.problem.value.at(0, 0, k, d) = poison;
      }
      clean.problem.query.at(0, 0, 77, d) = clean.problem.out_gradient->at(0, 0, 77, d) = 0;
      dirty.problem.query.at(0, 0, 77, d) = dirty.problem.out_gradient->at(0, 0, 77, d) = poison;
    }
    const auto expected = run_emulated(clean);
    const auto got = run_emulated(dirty);
    ASSERT_TRUE(expected) << expected.error().message();
    ASSERT_TRUE(got) << got.error().message();
    EXPECT_TRUE(oracle::same_bits(got->answer, expected->answer)) << "poison " << poison;
  }
}

TEST(EmulatedAttention, AVisibleNanReachesExactlyTheRowsThatSeeIt) {
  EmulatedCall call = window_call();
  call.problem.value.at(0, 0, 70, 5) = not_a_number;  // one element: reaches one column of `out`
  call.problem.key.at(0, 0, 110, 9) = not_a_number;   // reaches all of a row
  const auto run = run_emulated(call);
  ASSERT_TRUE(run) << run.error().message();
  const oracle::Answer expected = oracle::reference_attention(call.problem);
  const auto expect_same_nan = [](const char* name, const Tensor& got, const Tensor& wanted) {
    for (std::size_t i = 0; i < wanted.values.size(); ++i) {
      ASSERT_EQ(std::isnan(got.values[i]), std::isnan(wanted.values[i])) << name << " element " << i;
    }
  };
  expect_same_nan("out", run->answer.out, expected.out);
  expect_same_nan("lse", run->answer.lse, expected.lse);
  expect_same_nan("query_gradient", run->answer.query_gradient, expected.query_gradient);
  expect_same_nan("key_gradient", run->answer.key_gradient, expected.key_gradient);
  expect_same_nan("value_gradient", run->answer.value_gradient, expected.value_gradient);
}

TEST(EmulatedAttention, LargeLogitsStayExactWhereTheyTie) {
  EmulatedCall call;
  call.spec.mask = nullptr;
  call.problem = random_problem({1, 1, 1, 16, 100, 128, 128}, Format::bf16);
  for (const double raw : {-2.45e5, 2.45e5}) {
    std::fill(call.problem.query.values.begin(), call.problem.query.values.end(), 44.0);
    std::fill(call.problem.key.values.begin(), call.problem.key.values.end(), raw > 0 ? 43.5 : -43.5);
    expect_passes(call);
  }
}

}  // namespace
}  // namespace flashspan::test
