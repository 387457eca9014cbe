// strides_alignment_test.cpp -- any layout of rows gives the same numbers as contiguous rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class StridesAlignment : public AttentionTest {
 protected:
  Scenario scenario_{.shape = shape_of(2, 4, 2, 65, 129, 64),
                     .mask = Mask::causal(),
                     .visible = [](Index, Index, Index q, Index k) { return k <= q + 64; },
                     .lse_gradient = true};
};
FLASHSPAN_ON_EVERY_PLACE(StridesAlignment);

TEST_P(StridesAlignment, SequenceMajorTensorsGiveTheSameBits) {
  const Inputs inputs = random_inputs(scenario_.shape);
  const oracle::Answer expected = expect_passes(scenario_, inputs);
  const Arrangement sequence_major{.sequence_major = true};
  scenario_.query = scenario_.key = scenario_.value = scenario_.out = scenario_.out_gradient = sequence_major;
  EXPECT_TRUE(same_bits_but_for_sums(run(scenario_, inputs), expected));
}

// F019
TEST_P(StridesAlignment, EveryTensorMayLieDifferently) {
  const Inputs inputs = random_inputs(scenario_.shape);
  const oracle::Answer expected = run(scenario_, inputs);
  scenario_.query = {.sequence_major = true, .row_gap = 8};
  scenario_.key = {.row_gap = 24};
  scenario_.value = {.sequence_major = true, .offset = 16};
  scenario_.out = {.row_gap = 16};
  scenario_.out_gradient = {.sequence_major = true, .row_gap = 40};
  scenario_.statistics = {.sequence_major = true, .row_gap = 2};
  EXPECT_TRUE(same_bits_but_for_sums(run(scenario_, inputs), expected));
}

// F019: the gradient of a sum is one row with strides 0
TEST_P(StridesAlignment, AnOutGradientBroadcastFromOneRowGivesTheSameBits) {
  Inputs inputs = random_inputs(scenario_.shape);
  inputs.out_gradient = oracle::Tensor(2, 4, 65, 64, 1.0);
  scenario_.deterministic = true;
  scenario_.query = {.offset = 1};  // the copy engine takes neither this nor strides of 0: the same kernels serve both
  const oracle::Answer expected = expect_passes(scenario_, inputs);
  PlacedCall placed(scenario_, inputs, device(), dtype());
  expect_value(placed.run(attention()));
  BackwardCall call = placed.backward_call();
  call.out_gradient.strides = {0, 0, 0, 1, 0};
  const PoisonedWorkspace workspace(device(), expect_value(attention().workspace_bytes(call)));
  call.workspace = workspace.data();
  call.workspace_bytes = workspace.bytes();
  expect_value(attention().backward(call));
  expect_value(synchronize(device()));
  EXPECT_TRUE(same_bits_but_for_sums(placed.read(), expected));
}

// F020
TEST_P(StridesAlignment, RowsThatStartAnywhereGiveTheSameValuesAsAlignedOnes) {
  for (Index offset : {1, 2, 3}) {
    SCOPED_TRACE(offset);
    Scenario scenario{.shape = shape_of(6, 4, 4, 64, 64, 64)};
    scenario.query = scenario.key = scenario.value = {.offset = offset};
    expect_passes(scenario);
  }
}

TEST_P(StridesAlignment, OddStridesOfEveryTensorAreServed) {
  scenario_.query = {.offset = 1, .row_gap = 1};
  scenario_.key = {.sequence_major = true, .row_gap = 3};
  scenario_.value = {.offset = 5, .row_gap = 7};
  scenario_.out = {.sequence_major = true, .offset = 3, .row_gap = 5};
  scenario_.out_gradient = {.offset = 7, .row_gap = 9};
  expect_passes(scenario_);
}

// F020
TEST_P(StridesAlignment, TheKernelDependsOnTheAlignmentOfPointersAndNotOnStridesWithinAClass) {
  Scenario scenario{.shape = shape_of(1, 1, 1, 64, 64, 64)};
  const Inputs inputs = random_inputs(scenario.shape);
  const auto key_of = [&](const Arrangement& arrangement) {
    scenario.query = scenario.key = scenario.value = scenario.out = arrangement;
    const PlacedCall placed(scenario, inputs, device(), dtype());
    return expect_value(attention().prepare(placed.forward_call())).key;
  };
  const std::string aligned = key_of({});
  EXPECT_EQ(key_of({.row_gap = 64}), aligned);
  EXPECT_EQ(key_of({.sequence_major = true, .offset = 16}), aligned);
  if (on_cuda()) {
    EXPECT_NE(key_of({.offset = 1}), aligned);
    EXPECT_NE(key_of({.row_gap = 1}), aligned);
  }
}

// F017
TEST_P(StridesAlignment, KeysThatAreAViewOfALongerTensorUseTheirPartOnly) {
  constexpr Index length = 256;
  constexpr Index used = 128;
  Scenario whole{.shape = shape_of(1, 16, 16, 64, length, 64), .deterministic = true};
  const Inputs inputs = random_inputs(whole.shape);
  Scenario part = whole;
  part.shape.kv_len = used;
  PlacedCall placed(whole, inputs, device(), dtype());
  const oracle::Answer before = expect_passes(whole, inputs);
  // The first `used` rows of every head, in place; results into the same rows of the whole gradients.
  ForwardCall forward = placed.forward_call();
  BackwardCall backward = placed.backward_call();
  for (TensorView* view : {&forward.key, &forward.value, &backward.key, &backward.value, &backward.key_gradient,
                           &backward.value_gradient}) {
    view->shape[2] = used;
  }
  const auto bytes =
      std::max(expect_value(attention().workspace_bytes(forward)), expect_value(attention().workspace_bytes(backward)));
  const PoisonedWorkspace workspace(device(), bytes);
  forward.workspace = backward.workspace = workspace.data();
  forward.workspace_bytes = backward.workspace_bytes = bytes;
  expect_value(attention().forward(forward));
  expect_value(attention().backward(backward));
  expect_value(synchronize(device()));
  const oracle::Answer ours = placed.read();
  Inputs part_inputs = inputs;
  part_inputs.key = rows_of(inputs.key, 0, used);
  part_inputs.value = rows_of(inputs.value, 0, used);
  const oracle::Answer expected = expect_passes(part, part_inputs);
  EXPECT_TRUE(same_bits("out", ours.out, expected.out));
  EXPECT_TRUE(same_bits("key_gradient", rows_of(ours.key_gradient, 0, used), expected.key_gradient));
  EXPECT_TRUE(same_bits("value_gradient", rows_of(ours.value_gradient, 0, used), expected.value_gradient));
  for (Index h = 0; h < 16; ++h) {
    EXPECT_TRUE(std::isnan(ours.key_gradient.at(0, h, used, 0))) << "rows outside the view were written";
  }
  EXPECT_TRUE(same_bits_but_for_sums(run(whole, inputs), before)) << "the order of calls matters";
}

}  // namespace
}  // namespace flashspan::tests
