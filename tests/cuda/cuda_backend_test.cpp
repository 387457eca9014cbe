// What the back end asks of the driver, seen through a driver that records: kernels, grids, streams, contexts, errors.
#include "runtime/cuda/cuda_backend.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "codegen/kernel/tile_config.hpp"
#include "tests/cuda/call_fixture.hpp"
#include "tests/cuda/empty_cubin.hpp"
#include "tests/cuda/fake_driver.hpp"
#include "tests/cuda/made_up_address.hpp"

namespace flashspan::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// One for each program.
std::vector<std::byte> cubins_of(const kernel::KernelSpec& spec) {
  std::vector<std::byte> cubins = empty_cubin();
  if (spec.lowering == mask::LoweringKind::none) return cubins;
  const std::vector<std::byte> one = empty_cubin();
  cubins.insert(cubins.end(), one.begin(), one.end());
  return cubins;
}

class CudaBackendCalls : public testing::Test {
 protected:
  void open(int ordinal = 0) {
    const auto device = CudaDevice::open(driver_.api(), ordinal);
    ASSERT_TRUE(device);
    auto backend = make_cuda_backend(*device, {});
    ASSERT_TRUE(backend);
    backend_ = *std::move(backend);
  }
  void load(const kernel::KernelSpec& spec) {
    auto loaded = backend_->load(cubins_of(spec), spec);
    ASSERT_TRUE(loaded) << loaded.error().message();
    kernel_ = *loaded;
  }
  void SetUp() override { driver_.context_stack = {theirs_}; }
  void TearDown() override {
    kernel_.reset();
    EXPECT_THAT(driver_.context_stack, ElementsAre(theirs_)) << "the caller's context is current again";
    EXPECT_EQ(driver_.live_libraries, 0);
    EXPECT_EQ(driver_.live_events, 0);
  }
  [[nodiscard]] std::vector<std::string> launched() const {
    std::vector<std::string> names;
    names.reserve(driver_.launches.size());
    for (const FakeDriver::Launch& launch : driver_.launches) names.push_back(launch.kernel);
    return names;
  }
  Result<void> run(const SmallCall& call) { return backend_->run(*kernel_, call.spec, call.args); }

  const CUcontext theirs_ = made_up_address<CUcontext>(0x77);
  FakeDriver driver_;
  std::unique_ptr<backend::Backend> backend_;
  std::shared_ptr<backend::LoadedKernel> kernel_;
};

TEST_F(CudaBackendCalls, FactsNameTheArchitectureOfTheDeviceItself) {
  open(1);
  EXPECT_EQ(backend_->facts().target.arch, (Arch{80, 0}));
  EXPECT_EQ(backend_->language(), kernel::Language::cuda);
}

TEST_F(CudaBackendCalls, LoadSetsTheSharedMemoryOfTheDeviceAndForcesTheLoad) {
  open(1);
  const SmallCall call(Direction::backward);
  load(call.spec);
  const std::int64_t shared = kernel::shared_memory_bytes(call.spec);
  ASSERT_EQ(driver_.attributes.size(), 2u);
  for (const FakeDriver::Attribute& attribute : driver_.attributes) {
    EXPECT_THAT(attribute.kernel, testing::AnyOf("attention_backward_dq", "attention_backward_dkdv"));
    EXPECT_EQ(attribute.attribute, function_attribute_max_dynamic_shared_size_bytes);
    EXPECT_EQ(attribute.value, shared);
    EXPECT_EQ(attribute.device, 1);
  }
  const auto forced = std::count_if(driver_.calls.begin(), driver_.calls.end(), [](const FakeDriver::Call& made) {
    return made.name == "cuKernelGetFunction" && made.context == FakeDriver::context_of(1);
  });
  EXPECT_EQ(forced, 5) << "the planner, delta, sink, dq, dkdv, each with the device's context current";
}

TEST_F(CudaBackendCalls, LoadAsksOnlyForKernelsThatTheModuleDefines) {
  open();
  SmallCall call(Direction::forward);
  call.spec.lowering = mask::LoweringKind::none;
  load(call.spec);
  const auto asked = std::count_if(driver_.calls.begin(), driver_.calls.end(),
                                   [](const FakeDriver::Call& made) { return made.name == "cuLibraryGetKernel"; });
  EXPECT_EQ(asked, 1) << "attention_forward";
}

TEST_F(CudaBackendCalls, LoadReturnsTheDriversErrorAndUnloads) {
  open();
  const SmallCall call(Direction::forward);
  for (const char* failing :
       {"cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelSetAttribute", "cuKernelGetFunction"}) {
    driver_.failures = {{failing, cuda_error_invalid_value}};
    const auto loaded = backend_->load(cubins_of(call.spec), call.spec);
    ASSERT_FALSE(loaded) << failing;
    EXPECT_EQ(loaded.error().code, ErrorCode::device_error);
    EXPECT_EQ(loaded.error().argument, failing);
    EXPECT_EQ(driver_.live_libraries, 0) << failing;
    EXPECT_THAT(driver_.context_stack, ElementsAre(theirs_)) << failing;
  }
}

TEST_F(CudaBackendCalls, LoadTellsACubinThatTheDeviceDoesNotTakeFromADeviceThatTakesNone) {
  open();
  const SmallCall call(Direction::forward);
  const auto code_after = [&](CUresult failure) {
    driver_.failures = {{"cuLibraryLoadData", failure}};
    return backend_->load(cubins_of(call.spec), call.spec).error().code;
  };
  for (const CUresult of_the_cubin : {cuda_error_no_binary_for_gpu, cuda_error_invalid_image}) {
    EXPECT_EQ(code_after(of_the_cubin), ErrorCode::unsupported) << of_the_cubin;
  }
  constexpr CUresult out_of_memory = 2, illegal_address_before = 700;
  for (const CUresult of_the_device : {out_of_memory, illegal_address_before}) {
    EXPECT_EQ(code_after(of_the_device), ErrorCode::device_error) << of_the_device;
  }
}

TEST_F(CudaBackendCalls, KernelsAreAskedForInTheModuleOfTheirProgram) {
  open();
  SmallCall call(Direction::forward);
  load(call.spec);
  std::vector<std::vector<std::string>> asked;
  for (const auto& [library, names] : driver_.kernels_asked_for) asked.push_back(names);
  EXPECT_THAT(asked, ElementsAre(ElementsAre("attention_forward"), ElementsAre("plan_tiles")));
}

TEST_F(CudaBackendCalls, LoadNeverHandsTheDriverADamagedCubin) {
  open();
  const SmallCall call(Direction::forward);
  std::vector<std::byte> second_is_short = cubins_of(call.spec);
  second_is_short.pop_back();
  for (const auto& damaged : {std::vector{std::byte{1}, std::byte{2}}, second_is_short}) {
    const auto loaded = backend_->load(damaged, call.spec);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, ErrorCode::unsupported);
    EXPECT_FALSE(driver_.called("cuLibraryLoadData"));
  }
}

TEST_F(CudaBackendCalls, LoadTakesACubinForEachProgramAndNoMore) {
  open();
  SmallCall call(Direction::forward);
  const auto refused = [&](const std::vector<std::byte>& cubins, const char* got, const char* takes) {
    const auto loaded = backend_->load(cubins, call.spec);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, ErrorCode::unsupported);
    EXPECT_EQ(loaded.error().got, got);
    EXPECT_THAT(loaded.error().takes, testing::StartsWith(takes));
    EXPECT_FALSE(driver_.called("cuLibraryLoadData"));
  };
  const std::vector<std::byte> two = cubins_of(call.spec);
  refused(empty_cubin(), "1", "2");
  refused({}, "0", "2");
  call.spec.lowering = mask::LoweringKind::none;
  refused(two, "2", "1");
}

TEST_F(CudaBackendCalls, ForwardPlansAndLaunchesOneKernel) {
  open();
  const SmallCall call(Direction::forward);
  load(call.spec);
  const auto done = run(call);
  ASSERT_TRUE(done) << done.error().message();
  ASSERT_THAT(launched(), ElementsAre("plan_tiles", "attention_forward"));
  const FakeDriver::Launch& plan = driver_.launches[0];
  EXPECT_EQ(plan.config.grid_x, 4u) << "a block a tile";
  EXPECT_EQ(plan.config.block_x, 256u);
  EXPECT_EQ(plan.config.dynamic_shared_bytes, 0u);
  const FakeDriver::Launch& forward = driver_.launches[1];
  EXPECT_EQ(forward.config.grid_x, 24u);
  EXPECT_EQ(forward.config.grid_y * forward.config.grid_z, 1u);
  EXPECT_EQ(forward.config.block_x, 128u);
  EXPECT_EQ(forward.config.dynamic_shared_bytes, static_cast<unsigned>(kernel::shared_memory_bytes(call.spec)));
  EXPECT_EQ(forward.attention.q_len, 100);
  EXPECT_EQ(forward.attention.by_query.counts, plan.attention.by_query.counts);
  EXPECT_NE(forward.attention.by_query.counts, nullptr);
}

TEST_F(CudaBackendCalls, AHopperForwardHasAtMostOneBlockAProcessorAndAWarpgroupThatCopies) {
  open();
  SmallCall call(Direction::forward);
  call.spec.family = kernel::KernelFamily::hopper;
  call.spec.tile = {128, 128, 8, 2};
  load(call.spec);
  ASSERT_TRUE(run(call));
  EXPECT_EQ(driver_.launches.back().config.grid_x, 12u) << "as many as there are items";
  EXPECT_EQ(driver_.launches.back().config.block_x, 384u);
  call.set_shape({40, 6, 3, 100, 200, 64, 32});
  ASSERT_TRUE(run(call));
  EXPECT_EQ(driver_.launches.back().config.grid_x, 132u);
}

TEST_F(CudaBackendCalls, AForwardThatSplitsRowsHasABlockAProcessorAndItsTicketsZeroed) {
  open();
  SmallCall call(Direction::forward);
  call.spec.family = kernel::KernelFamily::hopper;
  call.spec.split_rows = true;
  call.spec.tile = {128, 128, 8, 2};
  call.set_shape({1, 6, 3, 1, 8192, 64, 32});
  load(call.spec);
  ASSERT_TRUE(run(call));
  const FakeDriver::Launch& forward = driver_.launches.back();
  EXPECT_EQ(forward.config.grid_x, 96u) << "six rows of 64 tiles, at least four a portion";
  EXPECT_NE(forward.attention.split.partials, nullptr);
  ASSERT_EQ(driver_.memsets.size(), 1u);
  const FakeDriver::Memset& zeroed = driver_.memsets[0];
  EXPECT_EQ(zeroed.device, reinterpret_cast<std::uintptr_t>(forward.attention.split.tickets));
  EXPECT_EQ(zeroed.value, 0);
  EXPECT_EQ(zeroed.bytes, 6u * 4) << "a warp of each row has queries";
  EXPECT_EQ(zeroed.stream, forward.config.stream);
  EXPECT_LT(zeroed.launches_before, driver_.launches.size());
  driver_.failures["cuMemsetD8Async"] = cuda_error_invalid_value;
  const auto done = run(call);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().argument, "cuMemsetD8Async");
}

TEST_F(CudaBackendCalls, AHopperForwardDescribesItsInputsToTheCopyEngine) {
  open();
  SmallCall call(Direction::forward);
  call.spec.family = kernel::KernelFamily::hopper;
  call.spec.tile = {128, 80, 8, 2};
  call.set_shape({1, 6, 3, 100, 200, 64, 32});
  call.args.key.strides = {7, 64, 192, 1};  // [batch, row, head] order; the batch's stride is never used
  load(call.spec);
  ASSERT_TRUE(run(call));
  ASSERT_EQ(driver_.tensor_maps.size(), 3u);
  const auto& [query, key, value] = std::tie(driver_.tensor_maps[0], driver_.tensor_maps[1], driver_.tensor_maps[2]);
  EXPECT_EQ(query.address, call.args.query.data);
  EXPECT_EQ(query.data_type, tensor_map_bfloat16);
  EXPECT_THAT(query.extents, ElementsAre(64, 100, 6, 1));
  EXPECT_THAT(query.strides, ElementsAre(128, 12800, 16));
  EXPECT_THAT(query.box, ElementsAre(64, 128, 1, 1));
  EXPECT_THAT(key.extents, ElementsAre(64, 200, 3, 1));
  EXPECT_THAT(key.strides, ElementsAre(384, 128, 16));
  EXPECT_THAT(key.box, ElementsAre(64, 80, 1, 1));
  EXPECT_THAT(value.extents, ElementsAre(32, 200, 3, 1));
}

TEST_F(CudaBackendCalls, ATensorThatTheDriverRefusesIsNamedBeforeAnyLaunch) {
  open();
  SmallCall call(Direction::forward);
  call.spec.family = kernel::KernelFamily::hopper;
  load(call.spec);
  driver_.failures["cuTensorMapEncodeTiled"] = cuda_error_invalid_value;
  const auto done = run(call);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().argument, "cuTensorMapEncodeTiled");
  EXPECT_EQ(done.error().detail, "query");
  EXPECT_TRUE(driver_.launches.empty());
}

TEST_F(CudaBackendCalls, AHopperBackwardLaunchesItsKernelsInOrderAndDescribesTheGradientOfTheOutput) {
  open();
  SmallCall call(Direction::backward);
  call.spec.family = kernel::KernelFamily::hopper;
  call.spec.tile = {64, 128, 8, 2};
  load(call.spec);
  ASSERT_TRUE(run(call));
  ASSERT_THAT(launched(), ElementsAre("plan_tiles", "attention_backward_delta", "attention_backward_tiles",
                                      "attention_backward_query_gradient"));
  EXPECT_EQ(driver_.launches[1].config.grid_x, 96u) << "2 * 6 * 128 rows, 16 a block";
  EXPECT_EQ(driver_.launches[2].config.grid_x, 12u) << "2 * 3 * 2 tiles of keys";
  EXPECT_EQ(driver_.launches[2].config.block_x, 384u);
  EXPECT_EQ(driver_.launches[3].config.grid_x, 24u) << "2 * 6 * 2 tiles of queries";
  ASSERT_EQ(driver_.tensor_maps.size(), 4u);
  EXPECT_EQ(driver_.tensor_maps[0].box[1], 64u) << "query";
  EXPECT_EQ(driver_.tensor_maps[1].box[1], 128u) << "key";
  EXPECT_EQ(driver_.tensor_maps[3].address, call.args.out_gradient.data);
  EXPECT_EQ(driver_.tensor_maps[3].box[1], 64u);
  const auto& parameters = driver_.launches[2].attention;
  EXPECT_EQ(parameters.statistics_rows, 128);
  EXPECT_NE(parameters.shifted_lse, nullptr);
  EXPECT_NE(parameters.query_gradient_sums, nullptr);
}

TEST_F(CudaBackendCalls, AHopperBackwardInTwoPassesHasPersistentBlocksInBoth) {
  open();
  SmallCall call(Direction::backward);
  call.spec.family = kernel::KernelFamily::hopper;
  call.spec.two_passes = true;
  call.spec.tile = {128, 128, 8, 2};
  call.set_shape({2, 66, 33, 500, 600, 128, 128});
  load(call.spec);
  ASSERT_TRUE(run(call));
  ASSERT_THAT(launched(), ElementsAre("plan_tiles", "attention_backward_delta", "attention_backward_tiles",
                                      "attention_backward_query_gradient"));
  for (const std::size_t pass : {std::size_t{2}, std::size_t{3}}) {
    const auto& launch = driver_.launches[pass];
    EXPECT_EQ(launch.config.grid_x, 132u) << "a block a processor";
    EXPECT_EQ(launch.config.block_x, 384u);
    EXPECT_EQ(launch.config.dynamic_shared_bytes, static_cast<unsigned>(kernel::shared_memory_bytes(call.spec)));
  }
  for (const auto& map : driver_.tensor_maps) EXPECT_EQ(map.box[1], 64u) << "a step of queries or of keys";
  EXPECT_EQ(driver_.launches[3].attention.statistics_rows, 512);
}

TEST_F(CudaBackendCalls, BackwardPlansBothWaysAndLaunchesThreeKernelsInOrder) {
  open();
  const SmallCall call(Direction::backward);
  load(call.spec);
  const auto done = run(call);
  ASSERT_TRUE(done) << done.error().message();
  ASSERT_THAT(launched(), ElementsAre("plan_tiles", "attention_backward_delta", "attention_backward_dq",
                                      "attention_backward_dkdv"));
  EXPECT_EQ(driver_.launches[0].config.grid_x, 4u) << "a block a tile";
  EXPECT_EQ(driver_.launches[1].config.block_x, 256u);
  EXPECT_EQ(driver_.launches[1].config.grid_x, 150u);  // 2 * 6 * 100 rows, 8 a block
  EXPECT_EQ(driver_.launches[2].config.grid_x, 24u);
  EXPECT_EQ(driver_.launches[3].config.grid_x, 12u);
  const auto& parameters = driver_.launches[3].attention;
  EXPECT_NE(parameters.by_key.entries, nullptr);
  EXPECT_GT(reinterpret_cast<std::uintptr_t>(parameters.delta),
            reinterpret_cast<std::uintptr_t>(parameters.by_key.entries));
}

TEST_F(CudaBackendCalls, ABackwardThatIsAskedForTheSinksGradientLaunchesABlockAHead) {
  open();
  SmallCall call(Direction::backward);
  call.args.sink = TensorView::contiguous(made_up_address(0xa00), DType::f32, {6});
  call.args.sink_gradient = TensorView::contiguous(made_up_address(0xb00), DType::f32, {6});
  load(call.spec);
  const auto done = run(call);
  ASSERT_TRUE(done) << done.error().message();
  ASSERT_THAT(launched(), ElementsAre("plan_tiles", "attention_backward_delta", "attention_backward_sink",
                                      "attention_backward_dq", "attention_backward_dkdv"));
  EXPECT_EQ(driver_.launches[2].config.grid_x, 6u);
  EXPECT_EQ(driver_.launches[2].config.block_x, 256u);
  EXPECT_EQ(driver_.launches[2].attention.sink.data, call.args.sink.data);
}

TEST_F(CudaBackendCalls, ScoreGradientsAreClearedAndSummedAndWhereDeterministicMeasuredFirst) {
  open();
  SmallCall call(Direction::backward);
  mask::Program score({}, {{"bias", DType::f32, 2}});
  call.spec.score_gradients = "bias";
  mask::Bindings bindings{{}, {TensorView::contiguous(made_up_address(0xa00), DType::f32, {6, 300})}};
  call.args.score_program = &score;
  call.args.score_bindings = &bindings;
  call.args.score_gradients = {TensorView::contiguous(made_up_address(0xb00), DType::f32, {6, 300})};
  load(call.spec);
  ASSERT_TRUE(run(call));
  const auto names = [this] {
    std::vector<std::string> made = launched();
    made.erase(made.begin(), made.begin() + 4);  // those of any backward
    return made;
  };
  EXPECT_THAT(names(), ElementsAre("attention_backward_score_clear", "attention_backward_score_sum"));
  EXPECT_EQ(driver_.launches[4].config.grid_x, 8u) << "of 256 elements";
  EXPECT_EQ(driver_.launches[5].config.grid_x, 2u * 6u * 2u) << "a tile of queries each";
  EXPECT_EQ(driver_.launches[5].config.block_x, 128u);
  driver_.launches.clear();
  call.args.deterministic = true;
  ASSERT_TRUE(run(call));
  EXPECT_THAT(names(), ElementsAre("attention_backward_score_clear", "attention_backward_score_sum",
                                   "attention_backward_score_sum", "attention_backward_score_round"));
}

TEST_F(CudaBackendCalls, EveryLaunchOfACallIsOnTheCallersStreamInTheDevicesContext) {
  open(1);
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const SmallCall call(direction);
    load(call.spec);
    ASSERT_TRUE(run(call));
  }
  ASSERT_EQ(driver_.launches.size(), 2u + 4u);
  for (const FakeDriver::Launch& launch : driver_.launches) {
    EXPECT_EQ(launch.config.stream, made_up_address<CUstream>(0x5eed)) << launch.kernel;
    EXPECT_EQ(launch.context, FakeDriver::context_of(1)) << launch.kernel;
  }
}

TEST_F(CudaBackendCalls, LaunchingNeitherAllocatesNorWaitsNorLoads) {
  open();
  const SmallCall call(Direction::backward);
  load(call.spec);
  driver_.calls.clear();
  ASSERT_TRUE(run(call));
  for (const FakeDriver::Call& made : driver_.calls) {
    EXPECT_THAT(made.name,
                testing::AnyOf("cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuLaunchKernelEx"));
  }
}

TEST_F(CudaBackendCalls, TheCallersContextIsCurrentAgainAfterAFailedLaunch) {
  open();
  const SmallCall call(Direction::forward);
  load(call.spec);
  driver_.failures = {{"cuLaunchKernelEx", cuda_error_invalid_value}};
  const auto done = run(call);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::device_error);
  EXPECT_EQ(done.error().argument, "cuLaunchKernelEx");
  EXPECT_EQ(done.error().detail, "plan_tiles");
  EXPECT_THAT(driver_.context_stack, ElementsAre(theirs_));
}

TEST_F(CudaBackendCalls, WithoutAPlanThereIsNoPlannerAndNoList) {
  open();
  SmallCall call(Direction::forward);
  call.spec.lowering = mask::LoweringKind::none;
  call.args.workspace = nullptr;
  call.args.workspace_bytes = 0;
  load(call.spec);
  ASSERT_TRUE(run(call));
  ASSERT_THAT(launched(), ElementsAre("attention_forward"));
  EXPECT_EQ(driver_.launches[0].attention.by_query.entries, nullptr);
}

TEST_F(CudaBackendCalls, ACallWhosePlanIsMadeLaunchesNoPlannerAndFindsThePlanInItsPlace) {
  open();
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    SmallCall call(direction);
    load(call.spec);
    ASSERT_TRUE(run(call));
    const auto planned_by = driver_.launches.front().attention;
    driver_.launches.clear();
    call.args.planned = true;
    ASSERT_TRUE(run(call));
    if (direction == Direction::forward) {
      EXPECT_THAT(launched(), ElementsAre("attention_forward"));
    } else {
      EXPECT_THAT(launched(),
                  ElementsAre("attention_backward_delta", "attention_backward_dq", "attention_backward_dkdv"));
    }
    const auto& attention = driver_.launches.back().attention;
    EXPECT_NE(attention.by_query.entries, nullptr);
    EXPECT_EQ(attention.by_query.entries, planned_by.by_query.entries);
    EXPECT_EQ(attention.by_key.entries, planned_by.by_key.entries);
    EXPECT_EQ(attention.next_item, planned_by.next_item);
    driver_.launches.clear();
  }
}

TEST_F(CudaBackendCalls, AnInterpretedMaskTravelsInTheArgumentsOfTheFirstKernelAndStaysInTheWorkspace) {
  open();
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    driver_.launches.clear();
    SmallCall call(direction);
    call.spec = kernel::interpreted_of(call.spec).value();
    load(call.spec);
    driver_.calls.clear();
    ASSERT_TRUE(run(call));
    ASSERT_EQ(launched().front(), "plan_program");
    EXPECT_EQ(launched()[1], "plan_tiles");
    const FakeDriver::Launch& first = driver_.launches.front();
    EXPECT_EQ(first.code.instructions[0].operation, flashspan_device::Operation::variable);
    EXPECT_EQ(first.config.block_x, 128u);
    EXPECT_NE(first.mask.code, nullptr);
    for (const FakeDriver::Launch& launch : driver_.launches) EXPECT_EQ(launch.mask.code, first.mask.code);
    for (const FakeDriver::Call& made : driver_.calls) {
      EXPECT_THAT(made.name,
                  testing::AnyOf("cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuLaunchKernelEx"));
    }
    driver_.launches.clear();
    call.args.planned = true;
    ASSERT_TRUE(run(call));
    EXPECT_THAT(launched(), testing::Not(testing::Contains(testing::StartsWith("plan_"))));
    EXPECT_NE(driver_.launches.front().mask.code, nullptr);
  }
}

TEST_F(CudaBackendCalls, AnEmptyProblemLaunchesNothing) {
  open();
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    SmallCall call(direction);
    call.set_shape({0, 6, 3, 100, 200, 64, 32});
    load(call.spec);
    ASSERT_TRUE(run(call));
  }
  EXPECT_TRUE(driver_.launches.empty());
}

TEST_F(CudaBackendCalls, NoKeysStillLaunchWhatWritesTheOutput) {
  open();
  SmallCall call(Direction::forward);
  call.set_shape({2, 6, 3, 100, 0, 64, 32});
  load(call.spec);
  ASSERT_TRUE(run(call));
  EXPECT_THAT(launched(), ElementsAre("plan_tiles", "attention_forward"));
}

TEST_F(CudaBackendCalls, NoQueriesStillLaunchWhatWritesTheGradientsOfTheKeys) {
  open();
  SmallCall call(Direction::backward);
  call.set_shape({2, 6, 3, 0, 200, 64, 32});
  load(call.spec);
  ASSERT_TRUE(run(call));
  EXPECT_THAT(launched(), ElementsAre("plan_tiles", "attention_backward_dkdv"));
}

TEST_F(CudaBackendCalls, ASmallWorkspaceIsRefusedBeforeAnyLaunch) {
  open();
  SmallCall call(Direction::backward);
  load(call.spec);
  const std::int64_t wanted = backend_->workspace_bytes(call.spec, call.args);
  call.args.workspace_bytes = wanted - 1;
  const auto refused = run(call);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::workspace_too_small);
  EXPECT_EQ(refused.error().got, std::to_string(wanted - 1) + " bytes");
  EXPECT_THAT(refused.error().takes, HasSubstr("at least " + std::to_string(wanted) + " bytes"));
  call.args.workspace_bytes = wanted;
  call.args.workspace = nullptr;
  const auto none = run(call);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().got, "none");
  EXPECT_TRUE(driver_.launches.empty());
}

TEST_F(CudaBackendCalls, ATooLargeGridIsRefusedBeforeAnyLaunch) {
  open();
  SmallCall call(Direction::forward);
  load(call.spec);
  call.args.shape = {2147483647, 1, 1, 65, 1, 64, 32};
  const auto refused = run(call);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_TRUE(driver_.launches.empty());
}

TEST_F(CudaBackendCalls, MaskAndScoreDataReachTheirOwnArguments) {
  open();
  SmallCall call(Direction::forward, document_program(mask::Variable::b));
  int documents = 0;
  call.bindings.tensors[0] = TensorView::contiguous(&documents, DType::i32, {2, 200});
  mask::Program score({{"slope", mask::ValueType::real}}, {});
  mask::Bindings score_bindings;
  score_bindings.scalars = {{0, 0.25F}};
  call.args.score_program = &score;
  call.args.score_bindings = &score_bindings;
  load(call.spec);
  ASSERT_TRUE(run(call));
  for (const FakeDriver::Launch& launch : driver_.launches) {
    EXPECT_EQ(launch.mask.tensors[0].data, &documents) << launch.kernel;
    EXPECT_EQ(launch.mask.tensors[0].extent[1], 200) << launch.kernel;
    EXPECT_EQ(launch.attention.by_query.plan_batch, 2) << launch.kernel;
  }
  EXPECT_EQ(driver_.launches.back().score.reals[0], 0.25F) << "the planner takes no score";
}

TEST_F(CudaBackendCalls, UnloadingAfterTheDriverHasGoneIsQuiet) {
  open();
  const SmallCall call(Direction::forward);
  load(call.spec);
  driver_.failures = {{"cuLibraryUnload", cuda_error_deinitialized},
                      {"cuThreadExchangeStreamCaptureMode", cuda_error_deinitialized}};
  kernel_.reset();
  EXPECT_TRUE(driver_.called("cuLibraryUnload"));
}

TEST_F(CudaBackendCalls, UnloadingLeavesTheThreadsCaptureModeAsItWas) {
  open();
  driver_.capture_mode = 1;
  const SmallCall call(Direction::forward);
  load(call.spec);
  kernel_.reset();
  EXPECT_EQ(driver_.capture_mode, 1);
}

/// Kernels whose launches are followed, and so may be unloaded when they have ended.
class FollowedLaunches : public CudaBackendCalls {
 protected:
  void SetUp() override {
    CudaBackendCalls::SetUp();
    open();
    load(call_.spec);
    kernel_->follow_launches();
  }
  void run_on(CUstream stream) {
    call_.args.stream.handle = stream;
    ASSERT_TRUE(run(call_));
  }
  static unsigned long long number_of(std::uintptr_t number) { return 0x5000 + number; }
  static CUstream stream(std::uintptr_t number) { return made_up_address<CUstream>(number_of(number)); }
  SmallCall call_{Direction::forward};
};

TEST_F(FollowedLaunches, AKernelThatIsNotFollowedNeverMayBeUnloaded) {
  load(call_.spec);
  EXPECT_FALSE(kernel_->may_unload());
}

TEST_F(FollowedLaunches, AKernelMayBeUnloadedUnlessALaunchOfItIsPending) {
  EXPECT_TRUE(kernel_->may_unload()) << "never launched";
  driver_.busy = {number_of(1)};
  run_on(stream(1));
  EXPECT_FALSE(kernel_->may_unload());
  driver_.busy = {};
  EXPECT_TRUE(kernel_->may_unload());
}

TEST_F(FollowedLaunches, ALaunchOnOneStreamDoesNotHideThatOnAnother) {
  driver_.busy = {number_of(1)};
  run_on(stream(1));
  run_on(stream(2));
  EXPECT_FALSE(kernel_->may_unload());
}

TEST_F(FollowedLaunches, ANewStreamUnderTheHandleOfAnOldOneIsAnotherStream) {
  driver_.stream_numbers = {{stream(1), 10}};
  driver_.busy = {10};
  run_on(stream(1));
  driver_.stream_numbers = {{stream(1), 11}};
  run_on(stream(1));
  EXPECT_FALSE(kernel_->may_unload()) << "the old stream's launch is still pending";
  driver_.busy = {};
  EXPECT_TRUE(kernel_->may_unload());
}

TEST_F(FollowedLaunches, StreamsWhoseWorkHasEndedMakePlaceForOthers) {
  for (std::uintptr_t number = 0; number < 20; ++number) run_on(stream(number));
  EXPECT_TRUE(kernel_->may_unload());
}

TEST_F(FollowedLaunches, WhatCannotBeFollowedIsKeptForGood) {
  for (std::uintptr_t number = 0; number < 5; ++number) driver_.busy.insert(number_of(number));
  for (std::uintptr_t number = 0; number < 5; ++number) run_on(stream(number));
  driver_.busy = {};
  EXPECT_FALSE(kernel_->may_unload()) << "pending on more streams than there are places";
  for (const char* failing : {"cuStreamIsCapturing", "cuStreamGetId", "cuEventRecord"}) {
    load(call_.spec);
    kernel_->follow_launches();
    driver_.failures = {{failing, cuda_error_invalid_value}};
    run_on(stream(0));
    driver_.failures = {};
    EXPECT_FALSE(kernel_->may_unload()) << failing;
  }
  load(call_.spec);
  driver_.failures = {{"cuEventCreate", cuda_error_invalid_value}};
  kernel_->follow_launches();
  EXPECT_FALSE(kernel_->may_unload()) << "no events";
}

TEST_F(FollowedLaunches, ACapturedKernelIsKeptForGoodAndNoEventIsRecordedInTheCapture) {
  driver_.capturing = {stream(1)};
  run_on(stream(1));
  EXPECT_FALSE(driver_.called("cuEventRecord"));
  driver_.capturing = {};
  run_on(stream(1));
  EXPECT_FALSE(kernel_->may_unload()) << "the graph may be replayed";
}

TEST_F(FollowedLaunches, AskingAndLaunchingNeitherAllocatesNorWaits) {
  driver_.calls.clear();
  for (std::uintptr_t number = 0; number < 6; ++number) run_on(stream(number));
  static_cast<void>(kernel_->may_unload());
  for (const FakeDriver::Call& made : driver_.calls) {
    EXPECT_THAT(made.name, testing::AnyOf("cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuLaunchKernelEx",
                                          "cuStreamGetId", "cuStreamIsCapturing", "cuEventRecord", "cuEventQuery",
                                          "cuThreadExchangeStreamCaptureMode"));
  }
}

TEST_F(CudaBackendCalls, AStreamIsCapturingIfTheDriverSaysSoOrCannotSay) {
  open();
  const Stream asked{made_up_address<CUstream>(0x5eed)};
  EXPECT_FALSE(backend_->is_capturing(asked));
  driver_.capturing = {made_up_address<CUstream>(0x5eed)};
  EXPECT_TRUE(backend_->is_capturing(asked));
  driver_.capturing = {};
  driver_.failures = {{"cuStreamIsCapturing", cuda_error_invalid_value}};
  EXPECT_TRUE(backend_->is_capturing(asked));
}

TEST(CompileOnlyBackend, LoadsAndLaunchesNothing) {
  const auto backend = make_compile_only_backend({90, 0}, {});
  const SmallCall call(Direction::forward);
  EXPECT_EQ(backend->facts().target.arch, (Arch{90, 0}));
  const auto loaded = backend->load(empty_cubin(), call.spec);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::no_device);
  EXPECT_THAT(loaded.error().got, HasSubstr("sm_90"));
  EXPECT_GT(backend->workspace_bytes(call.spec, call.args), 0);
}

}  // namespace
}  // namespace flashspan::cuda
