// cuda_stream_test.cpp -- on a GPU: streams, contexts and memory of a call. Skipped without one.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "attention/attention_fixture.hpp"
#include "attention/cuda_driver.hpp"
#include "attention/mask_data.hpp"
#include "attention/queued_calls.hpp"

namespace flashspan::tests {
namespace {

class CudaCalls : public AttentionTest {
 protected:
  Scenario scenario_{
      .shape = shape_of(1, 4, 2, 1000, 1000, 64), .mask = Mask::causal(), .lse_gradient = true, .deterministic = true};
};
INSTANTIATE_TEST_SUITE_P(Places, CudaCalls, testing::Values(Place{DeviceKind::cuda, DType::bf16}), name_of);

// F086: the inputs arrive on the side stream, late; nothing of the call may run before them or on another stream.
TEST_P(CudaCalls, ACallOnASideStreamComesAfterTheWorkQueuedThere) {
  SideStream side(device().index);
  scenario_.shape = shape_of(1, 4, 4, 4096, 4096, 64);
  const Inputs inputs = random_inputs(scenario_.shape);
  const oracle::Answer expected = run(scenario_, inputs);
  const PlacedCall source(scenario_, inputs, device(), dtype());
  const auto ballast = expect_value(Buffer::allocate(device(), std::int64_t{1} << 30));
  const auto copies = [](const BackwardCall& from, const BackwardCall& to) {
    return std::array<std::pair<const TensorView, const TensorView>, 5>{{{from.query, to.query},
                                                                         {from.key, to.key},
                                                                         {from.value, to.value},
                                                                         {from.out_gradient, to.out_gradient},
                                                                         {from.lse_gradient, to.lse_gradient}}};
  };
  Inputs wrong = random_inputs(scenario_.shape, 77);
  PlacedCall placed(scenario_, wrong, device(), dtype());
  const QueuedCalls calls(placed, attention(), device(), {side.handle()});
  const PlacedCall wrong_source(scenario_, wrong, device(), dtype());
  for (int repeat = 0; repeat < 100; ++repeat) {
    for (int i = 0; i < 4; ++i) {
      expect_cuda(side.driver.memset_async(address_of(ballast.data()), 1, std::size_t{1} << 30, side.handle()));
    }
    for (const auto& [from, to] : copies(source.backward_call(), calls.backward)) {
      const auto bytes = static_cast<std::size_t>(from.element_count() * size_in_bytes(from.dtype));
      expect_cuda(side.driver.copy_async(address_of(to.data), address_of(from.data), bytes, side.handle()));
    }
    calls.queue(attention());
    // Wrong inputs again, behind the call on the same stream.
    for (const auto& [from, to] : copies(wrong_source.backward_call(), calls.backward)) {
      const auto bytes = static_cast<std::size_t>(from.element_count() * size_in_bytes(from.dtype));
      expect_cuda(side.driver.copy_async(address_of(to.data), address_of(from.data), bytes, side.handle()));
    }
    if (repeat % 20 != 0) continue;
    expect_value(synchronize(device(), {side.handle()}));
    ASSERT_TRUE(same_bits(placed.read(), expected)) << "repeat " << repeat;
  }
  expect_value(synchronize(device(), {side.handle()}));
  EXPECT_TRUE(same_bits(placed.read(), expected));
}

// F037, its second stream: calls of another kind share the processors with the one under test, in no fixed order.
TEST_P(CudaCalls, AnotherStreamThatIsBusyMeanwhileChangesNoBit) {
  const SideStream busy(device().index);
  const SideStream side(device().index);
  const Scenario other{
      .shape = shape_of(2, 8, 4, 1500, 1500, 64), .mask = Mask::causal(), .lse_gradient = true, .deterministic = true};
  const PlacedCall other_placed(other, random_inputs(other.shape), device(), dtype());
  const QueuedCalls other_calls(other_placed, attention(), device(), {busy.handle()});
  const AttentionShape shape = shape_of(1, 8, 8, 1024, 1024, 128);
  Integers starts;
  for (Index k = 0; k < shape.kv_len; ++k) starts.push_back(static_cast<std::int32_t>((k / 90 + 1) * 90));
  Integers ranges = random_integers(static_cast<std::size_t>(shape.q_len * 3 * 2), 0, shape.kv_len, 5);
  const std::vector<Mask> masks{Mask::causal(),
                                expect_value(Mask::flashmask(shape, view_of(starts, {1, 1, shape.kv_len, 1}), true)),
                                expect_value(Mask::key_ranges(shape, view_of(ranges, {1, 1, shape.q_len, 3, 2})))};
  for (const Mask& mask : masks) {
    const Scenario scenario{.shape = shape, .mask = mask, .lse_gradient = true, .deterministic = true};
    const Inputs inputs = random_inputs(shape);
    const oracle::Answer expected = run(scenario, inputs);
    for (int repeat = 0; repeat < 30; ++repeat) {
      const auto ballast = expect_value(Buffer::allocate(device(), std::int64_t{1000} * (repeat + 1)));
      const PlacedCall placed(scenario, inputs, device(), dtype());
      const QueuedCalls calls(placed, attention(), device(), {side.handle()});
      for (int ahead = 0; ahead < 3; ++ahead) other_calls.queue(attention());
      calls.queue(attention());
      other_calls.queue(attention());
      expect_value(synchronize(device(), {side.handle()}));
      ASSERT_TRUE(same_bits(placed.read(), expected)) << "run " << repeat;
      expect_value(synchronize(device(), {busy.handle()}));
    }
  }
}

// F084, the part that one GPU shows
TEST_P(CudaCalls, AnotherContextThatIsCurrentStaysCurrentAfterSuccessAndAfterFailure) {
  const CudaDriver driver;
  const Inputs inputs = random_inputs(scenario_.shape);
  const oracle::Answer expected = run(scenario_, inputs);
  cuda::CUcontext before = nullptr;
  cuda::CUcontext other = nullptr;
  cuda::CUcontext now = nullptr;
  expect_cuda(driver.ctx_get_current(&before));
  expect_cuda(driver.ctx_create(&other, 0, device().index));
  EXPECT_TRUE(same_bits(run(scenario_, inputs), expected));
  expect_cuda(driver.ctx_get_current(&now));
  EXPECT_EQ(now, other);
  Scenario refused = scenario_;
  refused.scale = NAN;
  refusal(refused, inputs);
  expect_cuda(driver.ctx_get_current(&now));
  EXPECT_EQ(now, other);
  expect_cuda(driver.ctx_set_current(nullptr));
  EXPECT_TRUE(same_bits(run(scenario_, inputs), expected)) << "with no context current";
  expect_cuda(driver.ctx_get_current(&now));
  EXPECT_EQ(now, nullptr);
  expect_cuda(driver.ctx_destroy(other));
  expect_cuda(driver.ctx_set_current(before));
}

// F084
TEST_P(CudaCalls, TensorsOnTheSecondDeviceAreServedThereWhileTheFirstIsCurrent) {
  std::vector<Device> devices;
  for (const Device& one : available_devices()) {
    if (one.kind == DeviceKind::cuda) devices.push_back(one);
  }
  if (devices.size() < 2) GTEST_SKIP() << "one CUDA device only";
  const SideStream first(devices[0].index);
  const Inputs inputs = random_inputs(scenario_.shape);
  const oracle::Answer expected = run(scenario_, inputs);
  AttentionOptions options;
  options.cache_dir = "";
  Attention second = expect_value(Attention::open(devices[1], options));
  for (int repeat = 0; repeat < 3; ++repeat) {
    PlacedCall placed(scenario_, inputs, devices[1], dtype());
    expect_value(placed.run(second));
    EXPECT_TRUE(same_bits(placed.read(), expected));
    cuda::CUcontext now = nullptr;
    expect_cuda(first.driver.ctx_get_current(&now));
    EXPECT_EQ(now, first.context());
    EXPECT_TRUE(same_bits(run(scenario_, inputs), expected)) << "on the first device again";
  }
  PlacedCall elsewhere(scenario_, inputs, devices[0], dtype());
  EXPECT_FALSE(elsewhere.run(second)) << "tensors of another device than the Attention's";
}

TEST_P(CudaCalls, ACallThatIsPreparedAllocatesNoDeviceMemory) {
  SideStream side(device().index);
  const Inputs inputs = random_inputs(scenario_.shape);
  PlacedCall placed(scenario_, inputs, device(), dtype());
  const QueuedCalls calls(placed, attention(), device(), {side.handle()});
  calls.queue(attention());
  expect_value(synchronize(device(), {side.handle()}));
  // Other processes may use the device too: an allocation of ours would show every time.
  bool unchanged = false;
  for (int attempt = 0; attempt < 10 && !unchanged; ++attempt) {
    std::size_t before = 0;
    std::size_t after = 0;
    std::size_t total = 0;
    expect_cuda(side.driver.mem_get_info(&before, &total));
    for (int repeat = 0; repeat < 100; ++repeat) calls.queue(attention());
    expect_cuda(side.driver.mem_get_info(&after, &total));
    unchanged = after == before;
    expect_value(synchronize(device(), {side.handle()}));
  }
  EXPECT_TRUE(unchanged);
}

}  // namespace
}  // namespace flashspan::tests
