// cuda_capture_test.cpp -- on a GPU: calls captured in a graph, with their kernels loaded, on disk only, and nowhere.
// Skipped without one. Field case F082; run under eager and lazy loading of modules.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "attention/attention_fixture.hpp"
#include "attention/cuda_driver.hpp"
#include "attention/mask_data.hpp"
#include "attention/queued_calls.hpp"
#include "tests/cli/process.hpp"

namespace flashspan::tests {
namespace {

class CudaCapture : public AttentionTest {
 protected:
  /// With kernels in `folder_` and none loaded, as in a process that has just started.
  [[nodiscard]] Attention open_fresh() const {
    AttentionOptions options;
    options.log = [](LogLevel, std::string_view) {};
    options.cache_dir = folder_.path();
    return expect_value(Attention::open(device(), options));
  }

  /// Ends the stream's capture and runs its graph once.
  void run_captured(const SideStream& side) const {
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    expect_cuda(side.driver.end_capture(side.handle(), &graph));
    expect_cuda(side.driver.instantiate(&executable, graph, 0));
    expect_cuda(side.driver.launch_graph(executable, side.handle()));
    expect_value(synchronize(device(), {side.handle()}));
    expect_cuda(side.driver.destroy_executable(executable));
    expect_cuda(side.driver.destroy_graph(graph));
  }

  /// A capture that the calls are refused in is as good after it as before: it goes on, and its graph runs.
  void expect_refused_without_harm(const QueuedCalls& calls, Attention& attention, SideStream& side) {
    const Buffer witness = expect_value(Buffer::allocate(device(), 2));
    expect_cuda(side.driver.begin_capture(side.handle(), capture_mode_global));
    expect_cuda(side.driver.memset_async(address_of(witness.data()), 11, 1, side.handle()));
    for (const Result<void>& refused : {attention.forward(calls.forward), attention.backward(calls.backward)}) {
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::bad_argument);
      EXPECT_EQ(refused.error().argument, "stream");
      EXPECT_NE(refused.error().takes.find("prepare()"), std::string::npos);
    }
    int status = 0;
    expect_cuda(side.driver.is_capturing(side.handle(), &status));
    EXPECT_EQ(status, capture_status_active);
    expect_cuda(side.driver.memset_async(address_of(witness.data()) + 1, 22, 1, side.handle()));
    run_captured(side);
    std::array<unsigned char, 2> got{};
    expect_value(witness.copy_to_host(got.data(), 2));
    EXPECT_EQ(got, (std::array<unsigned char, 2>{11, 22}));
  }

  /// Captures both calls and expects a replay of them to give `expected`.
  void expect_captured(const QueuedCalls& calls, const PlacedCall& placed, Attention& attention, SideStream& side,
                       const oracle::Answer& expected) {
    expect_cuda(side.driver.begin_capture(side.handle(), capture_mode_global));
    calls.queue(attention);
    run_captured(side);
    EXPECT_TRUE(same_bits(placed.read(), expected));
  }

  cli_test::Folder folder_;
  Scenario scenario_{
      .shape = shape_of(1, 4, 2, 1000, 1000, 64), .mask = Mask::causal(), .lse_gradient = true, .deterministic = true};
};
INSTANTIATE_TEST_SUITE_P(Places, CudaCapture, testing::Values(Place{DeviceKind::cuda, DType::bf16}), name_of);

// F082
TEST_P(CudaCapture, ACapturedCallReplaysTheBitsOfAnEagerOneOnWhateverTheInputsAreThen) {
  SideStream side(device().index);
  const Inputs inputs = random_inputs(scenario_.shape, 1);
  const Inputs later = random_inputs(scenario_.shape, 2);
  const oracle::Answer expected = run(scenario_, inputs);
  const oracle::Answer expected_later = run(scenario_, later);
  PlacedCall placed(scenario_, inputs, device(), dtype());
  const QueuedCalls calls(placed, attention(), device(), {side.handle()});
  expect_value(attention().prepare(calls.forward));
  expect_value(attention().prepare(calls.backward));

  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  expect_cuda(side.driver.begin_capture(side.handle(), capture_mode_global));
  calls.queue(attention());
  expect_cuda(side.driver.end_capture(side.handle(), &graph));
  expect_cuda(side.driver.instantiate(&executable, graph, 0));

  for (int replay = 0; replay < 3; ++replay) {
    expect_cuda(side.driver.launch_graph(executable, side.handle()));
    expect_value(synchronize(device(), {side.handle()}));
    EXPECT_TRUE(same_bits(placed.read(), expected)) << "replay " << replay;
  }
  const PlacedCall source(scenario_, later, device(), dtype());
  const BackwardCall from = source.backward_call();
  for (const auto& [to, view] : {std::pair{calls.backward.query, from.query},
                                 {calls.backward.key, from.key},
                                 {calls.backward.value, from.value},
                                 {calls.backward.out_gradient, from.out_gradient},
                                 {calls.backward.lse_gradient, from.lse_gradient}}) {
    const auto bytes = static_cast<std::size_t>(view.element_count() * size_in_bytes(view.dtype));
    expect_cuda(side.driver.copy_async(address_of(to.data), address_of(view.data), bytes, side.handle()));
  }
  expect_cuda(side.driver.launch_graph(executable, side.handle()));
  expect_value(synchronize(device(), {side.handle()}));
  EXPECT_TRUE(same_bits(placed.read(), expected_later));
  expect_cuda(side.driver.destroy_executable(executable));
  expect_cuda(side.driver.destroy_graph(graph));
}

// Few queries, many keys: how rows are cut into portions is found out on the device, again in every replay.
TEST_P(CudaCapture, AReplayCutsRowsAsTheMaskDataAreThen) {
  constexpr Index q_len = 40, kv_len = 6000;
  SideStream side(device().index);
  const auto ends = [](std::uint64_t seed) {
    Integers values = random_integers(q_len, 0, kv_len, seed);
    std::fill_n(values.begin(), seed % 2 == 0 ? 3 : 20, 0);
    return values;
  };
  const auto scenario_of = [&](Integers& values) {
    return Scenario{.shape = shape_of(1, 2, 1, q_len, kv_len, 64),
                    .mask = expect_value(Mask::parse("k < end[q]", {{"end", view_of(values, {q_len})}})),
                    .backward = false};
  };
  Integers values = ends(1);
  Scenario scenario = scenario_of(values);
  const Inputs inputs = random_inputs(scenario.shape);
  const std::int64_t bytes = q_len * size_in_bytes(DType::i32);
  Buffer on_device = expect_value(Buffer::allocate(device(), bytes));
  const Mask mask = expect_value(
      Mask::parse("k < end[q]", {{"end", TensorView::contiguous(on_device.data(), DType::i32, {q_len}, device())}}));
  const PlacedCall placed(scenario, inputs, device(), dtype());
  ForwardCall call = placed.forward_call();
  call.mask = &mask;
  call.stream = {side.handle()};
  const PoisonedWorkspace workspace(device(), expect_value(attention().workspace_bytes(call)));
  call.workspace = workspace.data();
  call.workspace_bytes = workspace.bytes();
  expect_value(attention().prepare(call));

  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  expect_cuda(side.driver.begin_capture(side.handle(), capture_mode_global));
  expect_value(attention().forward(call));
  expect_cuda(side.driver.end_capture(side.handle(), &graph));
  expect_cuda(side.driver.instantiate(&executable, graph, 0));
  for (const std::uint64_t seed : {1, 2, 3, 2}) {
    SCOPED_TRACE(seed);
    values = ends(seed);
    expect_value(on_device.copy_from_host(values.data(), bytes));
    expect_cuda(side.driver.launch_graph(executable, side.handle()));
    expect_value(synchronize(device(), {side.handle()}));
    EXPECT_TRUE(same_bits(placed.read(), run(scenario_of(values), inputs)));
  }
  expect_cuda(side.driver.destroy_executable(executable));
  expect_cuda(side.driver.destroy_graph(graph));
}

TEST_P(CudaCapture, WithAColdCacheACallIsRefusedByNameAndTheCaptureGoesOn) {
  SideStream side(device().index);
  const Inputs inputs = random_inputs(scenario_.shape);
  const PlacedCall placed(scenario_, inputs, device(), dtype());
  Attention fresh = open_fresh();
  const QueuedCalls calls(placed, fresh, device(), {side.handle()});
  expect_refused_without_harm(calls, fresh, side);
  calls.queue(fresh);  // no capture now: compiled on the way
  expect_value(synchronize(device(), {side.handle()}));
  const oracle::Answer expected = run(scenario_, inputs);
  EXPECT_TRUE(same_bits(placed.read(), expected));
  expect_captured(calls, placed, fresh, side, expected);
}

TEST_P(CudaCapture, WithItsKernelsOnDiskButNotLoadedACallIsRefusedUntilItIsPrepared) {
  SideStream side(device().index);
  const Inputs inputs = random_inputs(scenario_.shape);
  const PlacedCall placed(scenario_, inputs, device(), dtype());
  {
    Attention earlier = open_fresh();
    EXPECT_EQ(expect_value(earlier.prepare(placed.forward_call())).outcome, "built");
    EXPECT_EQ(expect_value(earlier.prepare(placed.backward_call())).outcome, "built");
  }
  Attention fresh = open_fresh();
  const QueuedCalls calls(placed, fresh, device(), {side.handle()});
  expect_refused_without_harm(calls, fresh, side);
  EXPECT_EQ(expect_value(fresh.prepare(calls.forward)).outcome, "disk");
  EXPECT_EQ(expect_value(fresh.prepare(calls.backward)).outcome, "disk");
  expect_captured(calls, placed, fresh, side, run(scenario_, inputs));
}

TEST_P(CudaCapture, AKernelMadeByAnotherThreadDuringACaptureDoesNotBreakIt) {
  SideStream side(device().index);
  const Inputs inputs = random_inputs(scenario_.shape);
  const PlacedCall placed(scenario_, inputs, device(), dtype());
  const oracle::Answer expected = run(scenario_, inputs);
  Attention fresh = open_fresh();
  const QueuedCalls calls(placed, fresh, device(), {side.handle()});
  expect_value(fresh.prepare(calls.forward));
  expect_value(fresh.prepare(calls.backward));
  Scenario other = scenario_;
  other.mask = expect_value(Mask::parse("(q * 5 >= k * 4) & (k % 11 != 3)"));
  const PlacedCall elsewhere(other, inputs, device(), dtype());

  expect_cuda(side.driver.begin_capture(side.handle(), capture_mode_global));
  expect_value(fresh.forward(calls.forward));
  Result<KernelRecord> made = Error{};
  std::thread([&] { made = fresh.prepare(elsewhere.forward_call()); }).join();
  EXPECT_TRUE(made) << made.error().message();
  expect_value(fresh.backward(calls.backward));
  run_captured(side);
  EXPECT_TRUE(same_bits(placed.read(), expected));
}

TEST_P(CudaCapture, MemoryThatAnotherThreadTakesUsesAndGivesBackDuringACaptureDoesNotBreakIt) {
  SideStream side(device().index);
  const Buffer witness = expect_value(Buffer::allocate(device(), 1));
  expect_cuda(side.driver.begin_capture(side.handle(), capture_mode_global));
  expect_cuda(side.driver.memset_async(address_of(witness.data()), 11, 1, side.handle()));
  std::array<unsigned char, 2> got{};
  std::thread([&] {
    const std::array<unsigned char, 2> given{3, 4};
    Buffer elsewhere = expect_value(Buffer::allocate(device(), 2));
    expect_value(elsewhere.copy_from_host(given.data(), 2));
    expect_value(elsewhere.copy_to_host(got.data(), 2));
  }).join();
  EXPECT_EQ(got, (std::array<unsigned char, 2>{3, 4}));
  run_captured(side);
  expect_value(witness.copy_to_host(got.data(), 1));
  EXPECT_EQ(got[0], 11);
}

// Layers in one graph: the first plans and the others reuse, in every replay, by the mask's values of that moment.
TEST_P(CudaCapture, CapturedCallsThatShareAPlanFollowTheMasksValuesInEveryReplay) {
  SideStream side(device().index);
  Integers ids = document_ids({300, 60, 640});
  Integers later_ids = document_ids({900, 1, 99});
  const auto bytes = static_cast<std::int64_t>(ids.size() * sizeof(std::int32_t));
  Buffer on_device = expect_value(Buffer::allocate(device(), bytes));
  expect_value(on_device.copy_from_host(ids.data(), bytes));
  const Mask mask = expect_value(Mask::parse(
      "causal_document", {{"doc", TensorView::contiguous(on_device.data(), DType::i32, {1000}, device())}}));
  const auto scenario_of = [&](Integers& values) {
    Scenario scenario = scenario_;
    scenario.mask = expect_value(Mask::parse("causal_document", {{"doc", view_of(values, {1000})}}));
    return scenario;
  };
  constexpr std::size_t layers = 3;
  const QueuedCalls workspaces(PlacedCall(scenario_of(ids), random_inputs(scenario_.shape), device(), dtype()),
                               attention(), device(), {side.handle()});
  std::vector<Inputs> inputs;
  std::vector<std::unique_ptr<PlacedCall>> placed;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    inputs.push_back(random_inputs(scenario_.shape, layer + 1));
    placed.push_back(std::make_unique<PlacedCall>(scenario_, inputs.back(), device(), dtype()));
  }
  TilePlan forward_plan, backward_plan;
  const auto queue_layers = [&] {
    for (const auto& layer : placed) {
      ForwardCall forward = layer->forward_call();
      BackwardCall backward = layer->backward_call();
      forward.mask = backward.mask = &mask;
      forward.stream = backward.stream = {side.handle()};
      forward.workspace = workspaces.forward.workspace;
      forward.workspace_bytes = workspaces.forward.workspace_bytes;
      backward.workspace = workspaces.backward.workspace;
      backward.workspace_bytes = workspaces.backward.workspace_bytes;
      forward.plan = &forward_plan;
      backward.plan = &backward_plan;
      expect_value(attention().forward(forward));
      expect_value(attention().backward(backward));
    }
  };
  queue_layers();  // loads the kernels
  forward_plan = backward_plan = {};
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  expect_cuda(side.driver.begin_capture(side.handle(), capture_mode_global));
  queue_layers();
  expect_cuda(side.driver.end_capture(side.handle(), &graph));
  expect_cuda(side.driver.instantiate(&executable, graph, 0));
  for (Integers* values : {&ids, &later_ids, &later_ids, &ids}) {
    expect_value(on_device.copy_from_host(values->data(), bytes));
    expect_cuda(side.driver.launch_graph(executable, side.handle()));
    expect_value(synchronize(device(), {side.handle()}));
    for (std::size_t layer = 0; layer < layers; ++layer) {
      EXPECT_TRUE(same_bits(placed[layer]->read(), run(scenario_of(*values), inputs[layer]))) << "layer " << layer;
    }
  }
  expect_cuda(side.driver.destroy_executable(executable));
  expect_cuda(side.driver.destroy_graph(graph));
}

}  // namespace
}  // namespace flashspan::tests
