// determinism_test.cpp -- the same call gives the same bits, whatever ran before and whatever the memory held.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class Determinism : public AttentionTest {
 protected:
  // F037: fresh allocations every run, other sizes in between.
  void expect_same_bits_every_time(Scenario scenario) {
    scenario.deterministic = true;
    const Inputs inputs = random_inputs(scenario.shape);
    const oracle::Answer expected = run(scenario, inputs);
    const Scenario other{.shape = shape_of(1, 1, 1, 77, 99, scenario.shape.head_dim_qk), .mask = Mask::causal()};
    for (int repeat = 0; repeat < (on_cuda() ? 30 : 4); ++repeat) {
      const auto ballast = expect_value(Buffer::allocate(device(), std::int64_t{1000} * (repeat + 1)));
      run(other, random_inputs(other.shape));
      ASSERT_TRUE(same_bits(run(scenario, inputs), expected)) << "run " << repeat;
    }
  }
  AttentionShape shape() const {
    return on_cuda() ? shape_of(1, 8, 8, 1024, 1024, 128) : shape_of(1, 2, 1, 300, 300, 128);
  }
};
FLASHSPAN_ON_EVERY_PLACE(Determinism);

TEST_P(Determinism, CausalAttentionRepeatsItsBits) {
  expect_same_bits_every_time({.shape = shape(), .mask = Mask::causal(), .lse_gradient = true});
}

TEST_P(Determinism, FlashMaskDocumentsRepeatTheirBits) {
  const AttentionShape sizes = shape();
  Integers starts;
  for (Index k = 0; k < sizes.kv_len; ++k) {
    starts.push_back(static_cast<std::int32_t>(std::min(sizes.q_len, (k / 90 + 1) * 90)));
  }
  expect_same_bits_every_time(
      {.shape = sizes, .mask = expect_value(Mask::flashmask(sizes, view_of(starts, {1, 1, sizes.kv_len, 1}), true))});
}

TEST_P(Determinism, OverlappingRangesRepeatTheirBits) {
  const AttentionShape sizes = shape();
  Integers ranges = random_integers(static_cast<std::size_t>(sizes.q_len * 3 * 2), 0, sizes.kv_len, 5);
  expect_same_bits_every_time(
      {.shape = sizes, .mask = expect_value(Mask::key_ranges(sizes, view_of(ranges, {1, 1, sizes.q_len, 3, 2})))});
}

// Blocks that evaluate tiles hand rows on to whichever of them ends last.
TEST_P(Determinism, MasksOfWhichNoTileIsDecidedRepeatTheirBits) {
  const AttentionShape sizes = on_cuda() ? shape_of(1, 1, 1, 8192, 8192, 64) : shape();
  expect_same_bits_every_time({.shape = sizes, .mask = expect_value(Mask::parse("(q * 7 + k * 5) % 1009 < 300"))});
}

// What does not go through sums in any order has one result all the same.
TEST_P(Determinism, OnlyTheGradientOfTheQueryMayDifferWhereDeterminismIsNotAskedFor) {
  const Scenario scenario{.shape = shape(), .mask = Mask::causal(), .lse_gradient = true};
  const Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer expected = run(scenario, inputs);
  for (int repeat = 0; repeat < (on_cuda() ? 10 : 2); ++repeat) {
    const oracle::Answer again = run(scenario, inputs);
    EXPECT_TRUE(same_bits("out", again.out, expected.out));
    EXPECT_TRUE(same_bits("lse", again.lse, expected.lse));
    EXPECT_TRUE(same_bits("key_gradient", again.key_gradient, expected.key_gradient));
    EXPECT_TRUE(same_bits("value_gradient", again.value_gradient, expected.value_gradient));
  }
}

TEST_P(Determinism, CallsFromManyThreadsGiveTheBitsOfOne) {
  const Scenario scenario{.shape = shape_of(1, 2, 1, 130, 130, 64), .mask = Mask::causal(), .deterministic = true};
  const Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer expected = run(scenario, inputs);
  std::vector<oracle::Answer> answers(4);
  std::vector<std::thread> threads;
  threads.reserve(answers.size());
  for (oracle::Answer& answer : answers) {
    threads.emplace_back([&] {
      PlacedCall call(scenario, inputs, device(), dtype());
      if (call.run(attention())) answer = call.read();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const oracle::Answer& answer : answers) EXPECT_TRUE(same_bits(answer, expected));
}

}  // namespace
}  // namespace flashspan::tests
