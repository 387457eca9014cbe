// The path from a call to its launch over a fake back end: what is compiled when, and what reaches the device.
#include "runtime/attention/attention_op.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

#include "flashspan/mask.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "tests/runtime/fake_backend.hpp"

namespace flashspan::testing {
namespace {

using attention::AttentionCall;

class AttentionPath : public ::testing::Test {
 protected:
  AttentionPath() : memory_(1 << 18) {}

  [[nodiscard]] TensorView tensor(std::int64_t batch, std::int64_t heads, std::int64_t length, std::int64_t head_dim) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    void* aligned = reinterpret_cast<void*>((address + 63) / 64 * 64);
    return TensorView::contiguous(aligned, DType::f32, {batch, heads, length, head_dim});
  }

  [[nodiscard]] AttentionCall call(Direction direction, std::int64_t q_len, std::int64_t kv_len,
                                   std::int64_t head_dim = 16) {
    AttentionCall filled;
    filled.direction = direction;
    filled.query = tensor(1, 2, q_len, head_dim);
    filled.key = tensor(1, 1, kv_len, head_dim);
    filled.value = filled.key;
    filled.out = filled.query;
    filled.lse = TensorView::contiguous(filled.query.data, DType::f32, {1, 2, q_len});
    filled.out_gradient = filled.out;
    filled.query_gradient = filled.query;
    filled.key_gradient = filled.key;
    filled.value_gradient = filled.value;
    filled.mask = &causal_.state();
    return filled;
  }

  std::vector<float> memory_;
  Mask causal_ = Mask::causal();
  std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
  std::vector<std::string> lines_;
  LogSink log_ = [this](LogLevel, std::string_view line) { lines_.emplace_back(line); };
  std::shared_ptr<cache::KernelCache> cache_ = std::make_shared<cache::KernelCache>(std::nullopt, 1 << 20, log_);
  attention::AttentionOp op_{
      backend_, std::make_shared<attention::KernelProvider>(backend_, cache_, attention::ProviderOptions{{}, log_})};
};

TEST_F(AttentionPath, TheLaunchGetsShapeScaleAndStreamOfTheCall) {
  int stream = 0;
  AttentionCall filled = call(Direction::forward, 5, 7);
  filled.stream.handle = &stream;
  const auto done = op_.run(filled);
  ASSERT_TRUE(done.has_value()) << done.error().message();
  EXPECT_EQ(backend_->last_args.shape, (AttentionShape{1, 2, 1, 5, 7, 16, 16}));
  EXPECT_FLOAT_EQ(backend_->last_args.scale, 0.25F);
  EXPECT_EQ(backend_->last_args.mask_program, &causal_.state().program);
  EXPECT_EQ(backend_->last_args.score_program, nullptr);
  EXPECT_EQ(backend_->last_args.stream.handle, &stream);
  filled.scale = -2.0F;
  ASSERT_TRUE(op_.run(filled).has_value());
  EXPECT_FLOAT_EQ(backend_->last_args.scale, -2.0F);
}

// Field case F082: a capture is never broken by what a kernel takes before it can run.
TEST_F(AttentionPath, AMissingKernelIsRefusedWhileItsStreamIsCapturedAndALoadedOneIsQueued) {
  int stream = 0;
  AttentionCall filled = call(Direction::forward, 5, 7);
  filled.stream.handle = &stream;
  backend_->captured_stream = &stream;
  const auto refused = op_.run(filled);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::bad_argument);
  EXPECT_EQ(refused.error().argument, "stream");
  EXPECT_EQ(backend_->compiles + backend_->loads + backend_->runs, 0);
  ASSERT_TRUE(op_.prepare(filled).has_value());
  EXPECT_TRUE(op_.run(filled).has_value());
  EXPECT_EQ(backend_->runs, 1);
}

// Field case F089.
TEST_F(AttentionPath, LengthsDataAndScalarsNeverCompileAgain) {
  for (std::int64_t length = 1; length <= 200; ++length) {
    AttentionCall filled = call(Direction::forward, length, 201 - length);
    const auto window = Mask::window(length, 3);
    ASSERT_TRUE(window.has_value());
    filled.mask = &window->state();
    ASSERT_TRUE(op_.run(filled).has_value());
    filled.direction = Direction::backward;
    ASSERT_TRUE(op_.run(filled).has_value());
  }
  EXPECT_EQ(backend_->compiles, 2) << "one forward and one backward";
  EXPECT_EQ(backend_->runs, 400);
}

TEST_F(AttentionPath, AWarmCallBuildsNoText) {
  const AttentionCall filled = call(Direction::forward, 5, 7);
  ASSERT_TRUE(op_.run(filled).has_value());
  const int texts = backend_->texts;
  const std::size_t lines = lines_.size();
  for (int repeat = 0; repeat < 10; ++repeat) ASSERT_TRUE(op_.run(filled).has_value());
  EXPECT_EQ(backend_->texts, texts);
  EXPECT_EQ(backend_->loads, 1);
  EXPECT_EQ(lines_.size(), lines);
}

// Field cases F010 and F020: alignment is a property of pointers and strides, and part of the identity.
TEST_F(AttentionPath, AlignmentIsReadFromPointersAndStrides) {
  AttentionCall filled = call(Direction::forward, 5, 7);
  ASSERT_TRUE(op_.run(filled).has_value());
  EXPECT_TRUE(backend_->last_spec.aligned);
  filled.key.data = static_cast<float*>(filled.key.data) + 1;
  ASSERT_TRUE(op_.run(filled).has_value());
  EXPECT_FALSE(backend_->last_spec.aligned);
  EXPECT_EQ(backend_->loads, 2);
  filled = call(Direction::forward, 5, 7);
  filled.value.strides[2] = 18;
  ASSERT_TRUE(op_.run(filled).has_value());
  EXPECT_FALSE(backend_->last_spec.aligned);
  EXPECT_EQ(backend_->loads, 2);
  filled.value.shape[2] = filled.key.shape[2] = 1;
  ASSERT_TRUE(op_.run(filled).has_value());
  EXPECT_TRUE(backend_->last_spec.aligned) << "the stride of an axis of one element is never used";
}

TEST_F(AttentionPath, ExpandedInputsAreAlignedButNotForTheCopyEngine) {
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    AttentionCall filled = call(direction, 5, 7);
    filled.key.strides[2] = 0;
    EXPECT_TRUE(row_placement(filled).aligned);
    EXPECT_TRUE(row_placement(filled).expanded);
    filled.key.shape[2] = 1;
    EXPECT_FALSE(row_placement(filled).expanded) << "the stride of an axis of one element is never used";
  }
}

// Field case F032.
TEST_F(AttentionPath, BadInputCompilesAndLaunchesNothing) {
  AttentionCall filled = call(Direction::forward, 5, 7);
  filled.value.dtype = DType::bf16;
  EXPECT_FALSE(op_.run(filled).has_value());
  EXPECT_FALSE(op_.prepare(filled).has_value());
  EXPECT_FALSE(op_.workspace_bytes(filled).has_value());
  EXPECT_EQ(backend_->compiles, 0);
  EXPECT_EQ(backend_->runs, 0);
}

TEST_F(AttentionPath, AWorkspaceThatIsTooSmallIsRefusedBeforeAnythingIsCompiled) {
  backend_->workspace = 64;
  AttentionCall filled = call(Direction::forward, 5, 7);
  const auto refused = op_.run(filled);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::workspace_too_small);
  EXPECT_EQ(backend_->compiles, 0);
  filled.workspace = memory_.data();
  filled.workspace_bytes = *op_.workspace_bytes(filled);
  EXPECT_EQ(filled.workspace_bytes, 64);
  EXPECT_TRUE(op_.run(filled).has_value());
}

// Field case F014.
TEST_F(AttentionPath, ACallWithoutResultsLaunchesNothing) {
  EXPECT_TRUE(op_.run(call(Direction::forward, 0, 7)).has_value());
  EXPECT_EQ(backend_->runs, 0);
  EXPECT_TRUE(op_.run(call(Direction::forward, 5, 0)).has_value());
  EXPECT_EQ(backend_->runs, 1) << "out = 0 and lse = -inf have to be written";
  EXPECT_TRUE(op_.run(call(Direction::backward, 0, 7)).has_value());
  EXPECT_EQ(backend_->runs, 2) << "dk = dv = 0 have to be written";
}

TEST_F(AttentionPath, PrepareMakesTheCallThatFollowsWarm) {
  const AttentionCall filled = call(Direction::backward, 9, 9);
  const auto first = op_.prepare(filled);
  ASSERT_TRUE(first.has_value()) << first.error().message();
  EXPECT_FALSE(first->warm);
  EXPECT_EQ(first->ready->outcome, cache::Outcome::built);
  EXPECT_EQ(backend_->runs, 0);
  ASSERT_TRUE(op_.run(filled).has_value());
  EXPECT_EQ(backend_->loads, 1);
  EXPECT_TRUE(op_.prepare(filled)->warm);
}

TEST_F(AttentionPath, APlanIsMadeByTheFirstCallThatSharesItAndReusedByTheNext) {
  AttentionCall filled = call(Direction::forward, 5, 7);
  TilePlan plan;
  for (const bool planned : {false, true, true}) {
    filled.plan = &plan;
    ASSERT_TRUE(op_.run(filled).has_value());
    EXPECT_EQ(backend_->last_args.planned, planned);
    EXPECT_TRUE(plan.made);
    filled.plan = nullptr;
    ASSERT_TRUE(op_.run(filled).has_value());
    EXPECT_FALSE(backend_->last_args.planned) << "a call that shares no plan";
  }
  plan = {};
  filled.plan = &plan;
  ASSERT_TRUE(op_.run(filled).has_value());
  EXPECT_FALSE(backend_->last_args.planned);
}

TEST_F(AttentionPath, LaunchesPlansAndReusesAreCountedByDirectionAndFailuresAreNot) {
  const attention::Metrics& counted = op_.kernels()->metrics();
  TilePlan plan;
  AttentionCall filled = call(Direction::forward, 5, 7);
  ASSERT_TRUE(op_.run(filled).has_value());
  filled.plan = &plan;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(op_.run(filled).has_value());
  ASSERT_TRUE(op_.run(call(Direction::backward, 5, 7)).has_value());
  backend_->run_failures = 1;
  EXPECT_FALSE(op_.run(call(Direction::backward, 5, 7)).has_value());
  EXPECT_EQ(counted.launches[Direction::forward].value(), 4U);
  EXPECT_EQ(counted.plans[Direction::forward].value(), 2U);
  EXPECT_EQ(counted.reuses[Direction::forward].value(), 2U);
  EXPECT_EQ(counted.launches[Direction::backward].value(), 1U);
  EXPECT_EQ(counted.plans[Direction::backward].value(), 1U);
  EXPECT_EQ(counted.stand_in_launches.value(), 0U);
}

TEST_F(AttentionPath, APlanIsForOneWindowAndOneDirection) {
  const auto narrow = Mask::window(3, 0);
  const auto wide = Mask::window(4, 0);
  AttentionCall filled = call(Direction::forward, 5, 7);
  TilePlan plan;
  filled.plan = &plan;
  filled.mask = &narrow->state();
  ASSERT_TRUE(op_.run(filled).has_value());
  filled.mask = &wide->state();
  const auto other_window = op_.run(filled);
  ASSERT_FALSE(other_window.has_value());
  EXPECT_EQ(other_window.error().got, "a plan for other data of the mask");
  filled.mask = &narrow->state();
  filled.direction = Direction::backward;
  const auto other_direction = op_.run(filled);
  ASSERT_FALSE(other_direction.has_value());
  EXPECT_EQ(other_direction.error().got, "a plan for another kernel");
  EXPECT_EQ(backend_->runs, 1);
}

TEST_F(AttentionPath, ACallThatFailsOnTheDeviceLeavesNoPlan) {
  AttentionCall filled = call(Direction::forward, 5, 7);
  TilePlan plan;
  filled.plan = &plan;
  backend_->run_failures = 1;
  EXPECT_FALSE(op_.run(filled).has_value());
  EXPECT_FALSE(plan.made);
  ASSERT_TRUE(op_.run(filled).has_value());
  EXPECT_FALSE(backend_->last_args.planned);
  EXPECT_TRUE(plan.made);
}

TEST_F(AttentionPath, AScoreIsPartOfTheIdentityAndItsScalarsAreNot) {
  AttentionCall filled = call(Direction::forward, 5, 7);
  ASSERT_TRUE(op_.run(filled).has_value());
  for (double cap : {20.0, 30.0}) {
    const auto score = Score::parse("cap * tanh(score / cap)", {}, {{"cap", cap}});
    ASSERT_TRUE(score.has_value()) << score.error().message();
    filled.score = &score->state();
    ASSERT_TRUE(op_.run(filled).has_value());
    EXPECT_EQ(backend_->last_args.score_program, &score->state().program);
    EXPECT_FLOAT_EQ(backend_->last_args.score_bindings->scalars.front().real, static_cast<float>(cap));
  }
  EXPECT_EQ(backend_->compiles, 2);
}

}  // namespace
}  // namespace flashspan::testing
