// A frozen Attention: what becomes of a call whose kernel would have to be compiled.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <thread>
#include <vector>

#include "codegen/kernel/tile_config.hpp"
#include "flashspan/mask.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/attention_op.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "tests/runtime/fake_backend.hpp"
#include "tests/runtime/private_folder.hpp"

namespace flashspan::testing {
namespace {

using attention::AttentionCall;
using ::testing::HasSubstr;

class Freeze : public ::testing::Test {
 protected:
  /// As a fresh process over the same folder.
  std::unique_ptr<attention::AttentionOp> open(std::size_t max_loaded = attention::default_max_loaded_kernels) {
    auto cache = std::make_shared<cache::KernelCache>(cache::DiskStore(folder_.path() / "cache", log_), 1 << 20, log_);
    return std::make_unique<attention::AttentionOp>(
        backend_, std::make_shared<attention::KernelProvider>(backend_, std::move(cache),
                                                              attention::ProviderOptions{{}, log_, max_loaded}));
  }

  [[nodiscard]] AttentionCall call(const Mask& mask) {
    AttentionCall filled;
    filled.query = filled.key = filled.value = filled.out =
        TensorView::contiguous(memory_.data(), DType::f32, {1, 1, 4, 16});
    filled.mask = &mask.state();
    return filled;
  }

  [[nodiscard]] long warnings(const char* part) {
    const std::scoped_lock lock(mutex_);
    return std::ranges::count_if(warnings_, [part](const auto& line) { return line.find(part) != std::string::npos; });
  }

  PrivateFolder folder_;
  std::vector<float> memory_ = std::vector<float>(64);
  Mask causal_ = Mask::causal();
  Mask full_ = Mask::full();
  std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
  std::mutex mutex_;
  std::vector<std::string> warnings_;
  LogSink log_ = [this](LogLevel level, std::string_view line) {
    const std::scoped_lock lock(mutex_);
    if (level >= LogLevel::warning) warnings_.emplace_back(line);
  };
};

TEST_F(Freeze, ACallThatWasPreparedRunsAndAnotherIsRefusedByItsExpression) {
  const auto op = open();
  ASSERT_TRUE(op->prepare(call(causal_)).has_value());
  ASSERT_TRUE(op->freeze(MissPolicy::refuse));
  EXPECT_TRUE(op->run(call(causal_)).has_value());
  const auto refused = op->run(call(full_));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::not_prepared);
  EXPECT_THAT(refused.error().message(), HasSubstr("prepare()"));
  EXPECT_THAT(refused.error().message(), HasSubstr("expression: full"));
  EXPECT_EQ(backend_->compiles, 1);
  EXPECT_EQ(backend_->runs, 1);
}

TEST_F(Freeze, AKernelOnDiskIsLoadedAndNotCompiled) {
  ASSERT_TRUE(open()->prepare(call(causal_)).has_value());
  const auto fresh = open();
  ASSERT_TRUE(fresh->freeze(MissPolicy::refuse));
  EXPECT_TRUE(fresh->run(call(causal_)).has_value());
  EXPECT_EQ(backend_->compiles, 1);
  EXPECT_EQ(backend_->loads, 2);
}

TEST_F(Freeze, PrepareCompilesAsBeforeAndACompilingPolicyThaws) {
  const auto op = open();
  ASSERT_TRUE(op->freeze(MissPolicy::refuse));
  EXPECT_FALSE(op->run(call(causal_)).has_value());
  EXPECT_TRUE(op->prepare(call(causal_)).has_value());
  EXPECT_TRUE(op->run(call(causal_)).has_value());
  EXPECT_FALSE(op->run(call(full_)).has_value());
  ASSERT_TRUE(op->freeze(MissPolicy::compile));
  EXPECT_TRUE(op->run(call(full_)).has_value());
  EXPECT_EQ(warnings("inside a call"), 0);
}

TEST_F(Freeze, AWarningNamesEveryCompileInsideACall) {
  const auto op = open();
  ASSERT_TRUE(op->freeze(MissPolicy::warn));
  EXPECT_TRUE(op->run(call(causal_)).has_value());
  EXPECT_TRUE(op->run(call(causal_)).has_value());
  EXPECT_EQ(warnings("compiling inside a call: forward cpu"), 1);
  EXPECT_TRUE(op->prepare(call(full_)).has_value());
  EXPECT_EQ(warnings("inside a call"), 1) << "prepare() is no call";
}

TEST_F(Freeze, ARefusedCallDoesNotWaitForACompileOfAnotherThread) {
  const auto op = open();
  ASSERT_TRUE(op->freeze(MissPolicy::refuse));
  std::latch compiling(1), go_on(1);
  backend_->on_compile = [&] {
    compiling.count_down();
    go_on.wait();
  };
  std::jthread preparing([&] { EXPECT_TRUE(op->prepare(call(causal_)).has_value()); });
  compiling.wait();
  const auto refused = op->run(call(causal_));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().got, HasSubstr("another thread is compiling"));
  go_on.count_down();
  preparing.join();
  EXPECT_TRUE(op->run(call(causal_)).has_value());
}

TEST_F(Freeze, OneThatPreparesIsNotRefusedWithTheCallsThatAre) {
  const auto op = open();
  ASSERT_TRUE(op->freeze(MissPolicy::refuse));
  for (int round = 0; round < 50; ++round) {
    const auto mask = Mask::parse("k <= q + " + std::to_string(round));
    ASSERT_TRUE(mask.has_value());
    const AttentionCall filled = call(*mask);
    std::latch start(2);
    std::jthread calling([&] {
      start.arrive_and_wait();
      (void)op->run(filled);
    });
    start.arrive_and_wait();
    EXPECT_TRUE(op->prepare(filled).has_value());
  }
}

TEST_F(Freeze, AMissIsServedByTheInterpretedKernelUntilItsOwnIsCompiled) {
  const auto op = open();
  ASSERT_TRUE(op->prepare(call(causal_)).has_value());
  ASSERT_TRUE(op->freeze(MissPolicy::interpret));
  EXPECT_EQ(backend_->compiles, 2) << "the prepared one, and its stand-in";
  const auto window = Mask::window(3, 0);
  std::latch go_on(1);
  backend_->on_compile = [&] { go_on.wait(); };
  for (int repeat = 0; repeat < 3; ++repeat) {
    EXPECT_TRUE(op->run(call(*window)).has_value());
    EXPECT_EQ(backend_->last_spec.lowering, LoweringKind::interpreted);
    EXPECT_EQ(backend_->last_args.mask_program, &window->state().program);
  }
  go_on.count_down();
  EXPECT_TRUE(op->prepare(call(*window)).has_value());  // waits for the queue's compile
  EXPECT_TRUE(op->run(call(*window)).has_value());
  EXPECT_EQ(backend_->last_spec.lowering, LoweringKind::row_ranges);
  EXPECT_EQ(backend_->compiles, 3) << "one compile for the spec, whoever asked";
  EXPECT_EQ(warnings("until it is compiled"), 1);
}

TEST_F(Freeze, AKernelThatTookOverAndWasUnloadedIsLoadedAgain) {
  const auto op = open(2);
  ASSERT_TRUE(op->prepare(call(causal_)).has_value());
  ASSERT_TRUE(op->freeze(MissPolicy::interpret));
  const auto window = Mask::window(3, 0);
  ASSERT_TRUE(op->run(call(*window)).has_value());
  EXPECT_EQ(backend_->last_spec.lowering, LoweringKind::interpreted);
  ASSERT_TRUE(op->prepare(call(*window)).has_value());  // waits for the queue's compile
  ASSERT_TRUE(op->prepare(call(causal_)).has_value());
  ASSERT_TRUE(op->prepare(call(full_)).has_value());
  const int compiles = backend_->compiles;
  // The queue's thread needs a moment to note that it is done.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  do {
    ASSERT_TRUE(op->run(call(*window)).has_value());
  } while (backend_->last_spec.lowering == LoweringKind::interpreted && std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(backend_->last_spec.lowering, LoweringKind::row_ranges);
  EXPECT_EQ(backend_->compiles, compiles) << "it came from the cache";
}

TEST_F(Freeze, WhatHasNoStandInIsRefused) {
  const auto op = open();
  ASSERT_TRUE(op->prepare(call(causal_)).has_value());
  ASSERT_TRUE(op->freeze(MissPolicy::interpret));
  const auto score = Score::parse("score * 2");
  AttentionCall scored = call(causal_);
  scored.score = &score->state();
  const auto unserved = op->run(scored);
  ASSERT_FALSE(unserved.has_value());
  EXPECT_EQ(unserved.error().code, ErrorCode::not_prepared);
  AttentionCall other_dtype = call(causal_);
  for (TensorView* view : {&other_dtype.query, &other_dtype.key, &other_dtype.value, &other_dtype.out}) {
    view->dtype = DType::bf16;
  }
  const auto refused = op->run(other_dtype);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::not_prepared);
  EXPECT_EQ(backend_->runs, 0);
}

TEST_F(Freeze, AStandInThatHasPlannedGoesOnWithItsPlanWhenTheCallsOwnKernelIsThere) {
  const auto op = open();
  ASSERT_TRUE(op->prepare(call(causal_)).has_value());
  ASSERT_TRUE(op->freeze(MissPolicy::interpret));
  const auto window = Mask::window(3, 0);
  AttentionCall filled = call(*window);
  TilePlan plan;
  filled.plan = &plan;
  ASSERT_TRUE(op->run(filled).has_value());
  ASSERT_TRUE(op->prepare(filled).has_value());
  ASSERT_TRUE(op->run(filled).has_value());
  EXPECT_EQ(backend_->last_spec.lowering, LoweringKind::interpreted);
  EXPECT_TRUE(backend_->last_args.planned);
  const auto other = Mask::parse("k + 1 <= q");
  AttentionCall of_another_mask = filled;
  of_another_mask.mask = &other->state();
  const auto refused = op->run(of_another_mask);
  ASSERT_FALSE(refused.has_value()) << "though it is the same kernel";
  EXPECT_EQ(refused.error().argument, "plan");
  plan = {};
  ASSERT_TRUE(op->run(filled).has_value());
  EXPECT_NE(backend_->last_spec.lowering, LoweringKind::interpreted);
}

// A kernel that does not fit its registers leaves a note in the cache, so that no later process compiles it in vain.
TEST_F(Freeze, AProcessThatFindsWhichKernelsDoNotFitTakesTheirFallbacksWithoutCompiling) {
  backend_->emitted = kernel::Language::cuda;
  backend_->spilling = kernel::KernelFamily::hopper;
  attention::SpecChoice choice;
  choice.target = {DeviceKind::cuda, {90, 'a'}};
  choice.dtype = DType::bf16;
  choice.head_dim_qk = choice.head_dim_v = 64;
  const auto spec = attention::choose_spec(choice, causal_.state(), nullptr);
  const std::string text = "q >= k";
  ASSERT_TRUE(open()->kernels()->get(*spec, {&text, nullptr}).has_value());
  EXPECT_EQ(backend_->compiles, 3);
  const auto found = open()->kernels()->get(*spec, {&text, nullptr}, MissPolicy::refuse);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(found->ready->spec, *kernel::fallback_of(*kernel::fallback_of(*spec)));
  EXPECT_EQ(found->ready->outcome, cache::Outcome::disk);
  EXPECT_EQ(backend_->compiles, 3);
  EXPECT_EQ(warnings("8 bytes of spills; "), 4) << "a process says it once of each of two";
}

}  // namespace
}  // namespace flashspan::testing
