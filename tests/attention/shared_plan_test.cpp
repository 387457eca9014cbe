// shared_plan_test.cpp -- calls that share the plan of tiles in their workspace, as the layers of a model do.
#include <gtest/gtest.h>

#include <string>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"
#include "attention/queued_calls.hpp"

namespace flashspan::tests {
namespace {

class SharedPlan : public AttentionTest {
 protected:
  static constexpr Index length = 700;

  [[nodiscard]] static Scenario causal_documents(Integers& ids) {
    Scenario scenario{.shape = shape_of(2, 4, 2, length, length, 64), .lse_gradient = true};
    scenario.mask = expect_value(Mask::parse("causal_document", {{"doc", view_of(ids, {length})}}));
    scenario.visible = [ids](Index, Index, Index q, Index k) {
      return k <= q && ids[static_cast<std::size_t>(q)] == ids[static_cast<std::size_t>(k)];
    };
    return scenario;
  }

  /// Three layers of `scenario`, with inputs of their own, in both directions over two plans.
  void expect_layers_share(const Scenario& stated) {
    const Scenario scenario = here(stated);
    const PlacedCall first(scenario, random_inputs(scenario.shape, 1), device(), dtype());
    const QueuedCalls calls(first, attention(), device(), {});
    TilePlan forward_plan, backward_plan;
    for (std::uint64_t layer = 1; layer <= 3; ++layer) {
      const Inputs inputs = random_inputs(scenario.shape, layer);
      const oracle::Answer expected = run(scenario, inputs);
      const PlacedCall placed(scenario, inputs, device(), dtype());
      QueuedCalls of_layer(placed, attention(), device(), {});
      // One mask and one workspace for all layers.
      of_layer.forward.mask = of_layer.backward.mask = calls.forward.mask;
      of_layer.forward.workspace = calls.forward.workspace;
      of_layer.backward.workspace = calls.backward.workspace;
      of_layer.forward.plan = &forward_plan;
      of_layer.backward.plan = &backward_plan;
      of_layer.queue(attention());
      expect_value(synchronize(device()));
      EXPECT_TRUE(same_bits_but_for_sums(placed.read(), expected)) << "layer " << layer;
      EXPECT_TRUE(forward_plan.made && backward_plan.made);
    }
    EXPECT_TRUE(calls.forward_workspace.guard_untouched() && calls.backward_workspace.guard_untouched());
  }

  Integers ids_ = document_ids({300, 1, 64, 335});
  Integers other_ids_ = document_ids({20, 600, 80});
};
FLASHSPAN_ON_EVERY_PLACE(SharedPlan);

TEST_P(SharedPlan, GivesEveryLayerTheBitsOfACallThatPlansForItself) {
  const Scenario scenario = causal_documents(ids_);
  expect_passes(scenario);
  expect_layers_share(scenario);
}

TEST_P(SharedPlan, ServesMasksThatDifferByHeadAndBatch) {
  expect_layers_share(
      {.shape = shape_of(2, 4, 2, 300, 500, 128), .mask = expect_value(Mask::parse("k <= q + 50 * h + 7 * b"))});
}

TEST_P(SharedPlan, ServesMasksWithoutAPlan) {
  expect_layers_share({.shape = shape_of(1, 2, 2, 200, 300, 64), .lse_gradient = true});
}

TEST_P(SharedPlan, ServesScoresAndRowsOfUnalignedTensors) {
  Scenario scenario{.shape = shape_of(1, 2, 1, 260, 390, 64), .mask = Mask::causal()};
  scenario.score = expect_value(Score::parse("score + (k - q) / 8"));
  scenario.key = {.row_gap = 3};
  expect_layers_share(scenario);
}

// After the mask's values have changed, a plan made before would visit tiles that show nothing and miss others.
TEST_P(SharedPlan, IsMadeAnewForOtherValuesOfTheMaskAndSharedAgain) {
  const auto bytes = static_cast<std::int64_t>(ids_.size() * sizeof(std::int32_t));
  Buffer on_device = expect_value(Buffer::allocate(device(), bytes));
  const Mask mask = expect_value(Mask::parse(
      "causal_document", {{"doc", TensorView::contiguous(on_device.data(), DType::i32, {length}, device())}}));
  TilePlan plan;
  const PlacedCall first(causal_documents(ids_), random_inputs({2, 4, 2, length, length, 64, 64}), device(), dtype());
  const QueuedCalls calls(first, attention(), device(), {});
  for (Integers* now : {&ids_, &other_ids_, &ids_}) {
    expect_value(on_device.copy_from_host(now->data(), bytes));
    plan = {};
    const Scenario scenario = causal_documents(*now);
    for (std::uint64_t layer = 1; layer <= 2; ++layer) {
      const Inputs inputs = random_inputs(scenario.shape, layer);
      const oracle::Answer expected = expect_passes(scenario, inputs);
      const PlacedCall placed(scenario, inputs, device(), dtype());
      ForwardCall call = placed.forward_call();
      call.mask = &mask;
      call.workspace = calls.forward.workspace;
      call.workspace_bytes = calls.forward.workspace_bytes;
      call.plan = &plan;
      expect_value(attention().forward(call));
      expect_value(synchronize(device()));
      EXPECT_TRUE(same_bits("out", placed.read().out, expected.out)) << "layer " << layer;
    }
  }
}

TEST_P(SharedPlan, IsRefusedToACallThatItIsNotFor) {
  const Scenario scenario = causal_documents(ids_);
  const PlacedCall placed(scenario, random_inputs(scenario.shape), device(), dtype());
  const QueuedCalls calls(placed, attention(), device(), {});
  TilePlan plan;
  ForwardCall call = calls.forward;
  call.plan = &plan;
  expect_value(attention().forward(call));
  expect_value(synchronize(device()));
  const TilePlan made = plan;

  const auto expect_refused = [&](const ForwardCall& other, const std::string& got) {
    const Result<void> refused = attention().forward(other);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::bad_argument);
    EXPECT_EQ(refused.error().argument, "plan");
    EXPECT_EQ(refused.error().got, got);
    EXPECT_NE(refused.error().takes.find("TilePlan{}"), std::string::npos);
    EXPECT_TRUE(plan.made && plan.kernel == made.kernel) << "as good as before";
  };
  const PoisonedWorkspace elsewhere(device(), call.workspace_bytes);
  ForwardCall moved = call;
  moved.workspace = elsewhere.data();
  expect_refused(moved, "a plan that stands in another workspace");

  Scenario shorter = causal_documents(ids_);
  shorter.shape.q_len = length - 1;
  const PlacedCall fewer(shorter, random_inputs(shorter.shape), device(), dtype());
  ForwardCall resized = fewer.forward_call();
  resized.mask = call.mask;
  resized.workspace = call.workspace;
  resized.workspace_bytes = call.workspace_bytes;
  resized.plan = &plan;
  expect_refused(resized, "a plan for other sizes");

  const Mask copied = expect_value(scenario.mask->to(device()));
  const Mask causal = Mask::causal();
  ForwardCall other_mask = call;
  other_mask.mask = &causal;
  expect_refused(other_mask, "a plan for another kernel");
  other_mask.mask = &copied;
  expect_refused(other_mask, "a plan for other data of the mask");
}

}  // namespace
}  // namespace flashspan::tests
