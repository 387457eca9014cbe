// Mistakes in the tensors and numbers of a call.
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "flashspan/mask.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/validate.hpp"
#include "runtime/backend/workspace_check.hpp"
#include "runtime/cuda/cuda_backend.hpp"
#include "tests/errors/expect_error.hpp"

namespace flashspan::testing {
namespace {

using attention::AttentionCall;

/// A correct backward call of B 2, Hq 4, Hkv 2, Sq 6, Sk 8, D 16, Dv 24, to be spoilt by each test.
class CallErrors : public ::testing::Test {
 protected:
  CallErrors() : memory_(1 << 14) {
    call_.direction = Direction::backward;
    call_.query = tensor({2, 4, 6, 16});
    call_.key = tensor({2, 2, 8, 16});
    call_.value = tensor({2, 2, 8, 24});
    call_.out = tensor({2, 4, 6, 24});
    call_.out_gradient = call_.out;
    call_.query_gradient = call_.query;
    call_.key_gradient = call_.key;
    call_.value_gradient = call_.value;
    call_.lse = tensor({2, 4, 6});
    call_.lse.dtype = DType::f32;
    call_.mask = &mask_.state();
  }

  TensorView tensor(std::initializer_list<std::int64_t> shape, DType dtype = DType::bf16) {
    return TensorView::contiguous(memory_.data(), dtype, shape);
  }

  [[nodiscard]] Result<AttentionShape> checked(DeviceKind kind = DeviceKind::cpu) {
    backend::DeviceFacts facts;
    facts.device = {kind, 0};
    return attention::validate(call_, facts);
  }

  /// A call of these sizes whose tensors have no memory to speak of.
  void use_sizes(std::int64_t batch, std::int64_t heads, std::int64_t q_len, std::int64_t kv_len) {
    call_.query = call_.query_gradient = call_.out = call_.out_gradient = tensor({batch, heads, q_len, 16});
    call_.key = call_.key_gradient = call_.value = call_.value_gradient = tensor({batch, heads, kv_len, 16});
    call_.lse = tensor({batch, heads, q_len}, DType::f32);
  }

  void use_dtype(DType dtype) {
    for (TensorView* view : {&call_.query, &call_.key, &call_.value, &call_.out, &call_.out_gradient,
                             &call_.query_gradient, &call_.key_gradient, &call_.value_gradient}) {
      view->dtype = dtype;
    }
  }

  void move_to_cuda() {
    for (TensorView* view : {&call_.query, &call_.key, &call_.value, &call_.out, &call_.lse, &call_.out_gradient,
                             &call_.query_gradient, &call_.key_gradient, &call_.value_gradient}) {
      view->device = {DeviceKind::cuda, 0};
    }
  }

  std::vector<float> memory_;
  Mask mask_ = Mask::causal();
  AttentionCall call_;
};

TEST_F(CallErrors, ACorrectCallHasNone) {
  const auto shape = checked();
  ASSERT_TRUE(shape.has_value()) << shape.error().message();
  EXPECT_EQ(*shape, (AttentionShape{2, 4, 2, 6, 8, 16, 24}));
  move_to_cuda();
  EXPECT_TRUE(checked(DeviceKind::cuda).has_value());
  call_.direction = Direction::forward;
  call_.lse = {};
  EXPECT_TRUE(checked(DeviceKind::cuda).has_value()) << "the forward can do without lse";
}

TEST_F(CallErrors, MissingTensor) {
  call_.key = {};
  expect_error(checked(), {.argument = "key", .got = "no tensor", .takes = "[B, Hkv, Sk, D]"});
}

TEST_F(CallErrors, ShapeWithoutMemory) {
  call_.value.data = nullptr;
  expect_error(checked(), {.argument = "value", .got = "no tensor", .takes = "[B, Hkv, Sk, Dv]"});
}

TEST_F(CallErrors, BackwardWithoutLse) {
  call_.lse = {};
  expect_error(checked(), {.argument = "lse", .got = "no tensor", .takes = "f32[B, Hq, Sq]"});
}

TEST_F(CallErrors, WrongRank) {
  call_.query = tensor({4, 6, 16});
  expect_error(checked(), {.argument = "query", .got = "bf16[4, 6, 16]", .takes = "[B, Hq, Sq, D]"});
}

// Field case F032.
TEST_F(CallErrors, DifferentDtypes) {
  call_.value.dtype = DType::f16;
  expect_error(checked(), {.argument = "query, key, value, out, out_gradient, query_gradient, key_gradient, "
                                       "value_gradient",
                           .got = "bf16, bf16, f16, bf16, bf16, bf16, bf16, bf16",
                           .takes = "one dtype for all of them: f32, f16 or bf16"});
}

// Field case F032.
TEST_F(CallErrors, DtypeThatTheDeviceDoesNotServe) {
  use_dtype(DType::f32);
  EXPECT_TRUE(checked().has_value()) << "f32 is for the CPU";
  move_to_cuda();
  expect_error(checked(DeviceKind::cuda),
               {.argument = "query, key, value, out, out_gradient, query_gradient, key_gradient, value_gradient",
                .got = "f32, f32",
                .takes = "f16 or bf16 (f32 on the CPU only)"});
  use_dtype(DType::i32);
  expect_error(checked(DeviceKind::cuda),
               {.argument = "query, key, value, out, out_gradient, query_gradient, key_gradient, value_gradient",
                .got = "i32, i32",
                .takes = "f16 or bf16"});
}

TEST_F(CallErrors, LseOfAnotherDtype) {
  call_.lse.dtype = DType::bf16;
  expect_error(checked(), {.argument = "lse", .got = "bf16[2, 4, 6]", .takes = "f32[B, Hq, Sq]"});
}

TEST_F(CallErrors, SinkThatIsNotOneNumberAHead) {
  call_.sink = tensor({4}, DType::f32);
  EXPECT_TRUE(checked().has_value()) << "the backward may be given a sink and not asked for its gradient";
  call_.sink.strides[0] = 0;
  EXPECT_TRUE(checked().has_value()) << "one number may stand for all heads";
  call_.sink = tensor({2}, DType::f32);
  expect_error(checked(), {.argument = "sink", .got = "f32[2] (axis 0 is 2)", .takes = "f32[Hq = 4]"});
  call_.sink = tensor({2, 4}, DType::f32);
  expect_error(checked(), {.argument = "sink", .got = "f32[2, 4]", .takes = "f32[Hq]"});
  call_.sink = tensor({4});
  expect_error(checked(), {.argument = "sink", .got = "bf16[4]", .takes = "f32[Hq]"});
  call_.sink = tensor({4}, DType::f32);
  call_.sink.data = nullptr;
  expect_error(checked(), {.argument = "sink", .got = "no tensor", .takes = "f32[Hq]"});
  call_.sink = tensor({4}, DType::f32);
  call_.sink.strides[0] = -1;
  expect_error(checked(), {.argument = "sink", .got = "stride -1 on axis 0", .takes = "0 (broadcast) or more"});
  call_.sink = tensor({4}, DType::f32);
  call_.sink.device = {DeviceKind::cuda, 0};
  expect_error(checked(), {.argument = "sink", .got = "cuda:0", .takes = "cpu"});
}

TEST_F(CallErrors, SinkOfAForward) {
  call_.direction = Direction::forward;
  call_.sink = tensor({4}, DType::f32);
  EXPECT_TRUE(checked().has_value());
  call_.sink = tensor({5}, DType::f32);
  expect_error(checked(), {.argument = "sink", .got = "f32[5] (axis 0 is 5)", .takes = "f32[Hq = 4]"});
}

TEST_F(CallErrors, GradientOfASinkThatIsNotGiven) {
  call_.sink_gradient = tensor({4}, DType::f32);
  expect_error(checked(), {.argument = "sink", .got = "no tensor", .takes = "since sink_gradient is asked for"});
  call_.sink = tensor({4}, DType::f32);
  EXPECT_TRUE(checked().has_value());
  call_.sink_gradient.strides[0] = 0;
  expect_error(checked(), {.argument = "sink_gradient", .got = "stride 0 on axis 0", .takes = "written to"});
  call_.sink_gradient = tensor({3}, DType::f32);
  expect_error(checked(), {.argument = "sink_gradient", .got = "f32[3]", .takes = "f32[Hq = 4]"});
}

// Field case F084.
TEST_F(CallErrors, TensorsOnDifferentDevices) {
  move_to_cuda();
  call_.key.device.index = 1;
  expect_error(checked(DeviceKind::cuda), {.argument = "key", .got = "cuda:1", .takes = "cuda:0"});
}

TEST_F(CallErrors, TensorOnAnotherDeviceThanTheCall) {
  move_to_cuda();
  expect_error(checked(), {.argument = "query", .got = "cuda:0", .takes = "cpu"});
}

TEST_F(CallErrors, QueryHeadsNotAMultipleOfKvHeads) {
  call_.key = tensor({2, 3, 8, 16});
  expect_error(checked(), {.argument = "query heads", .got = "4", .takes = "a multiple of the 3 key/value heads"});
}

TEST_F(CallErrors, NoKvHeadsForSomeQueryHeads) {
  call_.key = tensor({2, 0, 8, 16});
  expect_error(checked(), {.argument = "query heads", .got = "4", .takes = "a multiple of the 0 key/value heads"});
}

TEST_F(CallErrors, BatchesDiffer) {
  call_.key = tensor({3, 2, 8, 16});
  expect_error(checked(), {.argument = "key", .got = "axis 0 is 3", .takes = "B = 2"});
}

TEST_F(CallErrors, KeyAndValueLengthsDiffer) {
  call_.value = tensor({2, 2, 7, 24});
  expect_error(checked(), {.argument = "value", .got = "axis 2 is 7", .takes = "Sk = 8"});
}

TEST_F(CallErrors, HeadDimsOfQueryAndKeyDiffer) {
  call_.key = tensor({2, 2, 8, 24});
  expect_error(checked(), {.argument = "key", .got = "axis 3 is 24", .takes = "D = 16"});
}

TEST_F(CallErrors, ResultsOfAnotherShape) {
  call_.out = tensor({2, 4, 6, 16});
  expect_error(checked(), {.argument = "out", .got = "axis 3 is 16", .takes = "Dv = 24"});
}

TEST_F(CallErrors, GradientsOfAnotherShape) {
  call_.key_gradient = tensor({2, 4, 8, 16});
  expect_error(checked(), {.argument = "key_gradient", .got = "axis 1 is 4", .takes = "Hkv = 2"});
}

TEST_F(CallErrors, LsePaddedToATile) {
  call_.lse = tensor({2, 4, 128}, DType::f32);
  expect_error(checked(), {.argument = "lse", .got = "axis 2 is 128", .takes = "Sq = 6"});
}

TEST_F(CallErrors, HeadDimThatTheDeviceDoesNotServe) {
  move_to_cuda();
  for (std::int64_t head_dim : {8, 20, 257, 264}) {
    call_.query.shape[3] = head_dim;
    expect_error(checked(DeviceKind::cuda), {ErrorCode::unsupported, "query", "head dim " + std::to_string(head_dim),
                                             "16 to 256 in steps of 8 on CUDA"});
  }
}

TEST_F(CallErrors, HeadDimThatTheCpuDoesNotServe) {
  call_.value.shape[3] = 257;
  expect_error(checked(), {ErrorCode::unsupported, "value", "head dim 257", "1 to 256 on the CPU"});
  call_.value.shape[3] = 0;
  expect_error(checked(), {ErrorCode::unsupported, "value", "head dim 0", "1 to 256 on the CPU"});
}

// Field case F019: a dO that came from a sum has strides of 0 on every axis.
TEST_F(CallErrors, LastAxisNotContiguous) {
  call_.out_gradient.strides = {0, 0, 0, 0, 0};
  expect_error(checked(), {.argument = "out_gradient", .got = "stride 0 on the last axis", .takes = "contiguous"});
  call_.out_gradient.strides = {0, 0, 0, 1, 0};
  EXPECT_TRUE(checked().has_value()) << "other axes may be broadcast";
  call_.query.strides[3] = 4;
  expect_error(checked(), {.argument = "query", .got = "stride 4 on the last axis", .takes = "contiguous"});
}

TEST_F(CallErrors, NegativeStride) {
  call_.key.strides[2] = -16;
  expect_error(checked(), {.argument = "key", .got = "stride -16 on axis 2", .takes = "0 (broadcast) or more"});
}

TEST_F(CallErrors, ResultWithBroadcastAxis) {
  call_.query_gradient.strides[1] = 0;
  expect_error(checked(), {.argument = "query_gradient", .got = "stride 0 on axis 1", .takes = "written to"});
}

TEST_F(CallErrors, MemoryBetweenTwoElements) {
  call_.query.data = reinterpret_cast<std::byte*>(memory_.data()) + 1;
  expect_error(checked(), {.argument = "query", .got = "does not start at a multiple", .takes = "2 bytes"});
}

TEST_F(CallErrors, SequenceTooLong) {
  call_.key.shape[2] = max_sequence_length + 1;
  expect_error(checked(), {.argument = "kv_len", .got = "1073741825", .takes = "0 to 1073741824"});
}

TEST_F(CallErrors, ScaleThatIsNoNumber) {
  call_.scale = std::numeric_limits<float>::quiet_NaN();
  expect_error(checked(), {.argument = "scale", .got = "nan", .takes = "a finite number"});
  call_.scale = std::numeric_limits<float>::infinity();
  expect_error(checked(), {.argument = "scale", .got = "inf", .takes = "a finite number"});
}

TEST_F(CallErrors, WorkspaceMissingOrTooSmall) {
  expect_error(backend::check_workspace(nullptr, 100, 100),
               {ErrorCode::workspace_too_small, "workspace", "none", "at least 100 bytes"});
  expect_error(backend::check_workspace(memory_.data(), 99, 100),
               {ErrorCode::workspace_too_small, "workspace", "99 bytes", "at least 100 bytes"});
  EXPECT_TRUE(backend::check_workspace(memory_.data(), 100, 100).has_value());
  EXPECT_TRUE(backend::check_workspace(nullptr, 0, 0).has_value());
}

// Field case F014.
TEST_F(CallErrors, EmptySequencesAndBatchesAreNone) {
  for (const auto& [batch, q_len, kv_len] : {std::array<std::int64_t, 3>{0, 6, 8}, {2, 0, 8}, {2, 6, 0}}) {
    for (TensorView* view : {&call_.query, &call_.out, &call_.out_gradient, &call_.query_gradient, &call_.lse}) {
      view->shape[0] = batch;
      view->shape[2] = q_len;
    }
    for (TensorView* view : {&call_.key, &call_.value, &call_.key_gradient, &call_.value_gradient}) {
      view->shape[0] = batch;
      view->shape[2] = kv_len;
    }
    const auto shape = checked();
    EXPECT_TRUE(shape.has_value()) << shape.error().message();
  }
}

// Field case F053.
TEST_F(CallErrors, MaskBuiltForAnotherLength) {
  std::vector<std::int32_t> startend(8, 8);
  const auto mask =
      Mask::flashmask({2, 4, 2, 8, 8, 0, 0}, TensorView::contiguous(startend.data(), DType::i32, {1, 1, 8, 1}), true);
  ASSERT_TRUE(mask.has_value()) << mask.error().message();
  call_.mask = &mask->state();
  expect_error(checked(), {.argument = "mask",
                           .got = "a call of B = 2, Hq = 4, Hkv = 2, Sq = 6, Sk = 8",
                           .takes = "calls of B = 2, Hq = 4, Hkv = 2, Sq = 8, Sk = 8"});
}

TEST_F(CallErrors, TwoMasksBuiltForDifferentLengths) {
  std::vector<std::int32_t> values(16, 0);
  const auto fitting =
      Mask::key_ranges({2, 4, 2, 6, 8, 0, 0}, TensorView::contiguous(values.data(), DType::i32, {1, 1, 6, 1, 2}));
  const auto other =
      Mask::key_ranges({2, 4, 2, 7, 8, 0, 0}, TensorView::contiguous(values.data(), DType::i32, {1, 1, 7, 1, 2}));
  ASSERT_TRUE(fitting && other);
  const Mask both = *fitting | *other;
  call_.mask = &both.state();
  expect_error(checked(), {.argument = "mask", .got = "Sq = 6", .takes = "Sq = 7"});
}

// Field case F063: masks of 10 x 15, 20 x 10 and 9 x 20 where 10 x 20 is meant.
TEST_F(CallErrors, DenseMaskOfAnotherShape) {
  std::vector<std::int32_t> values(400, 1);
  call_.query = tensor({1, 1, 10, 16});
  call_.key = tensor({1, 1, 20, 16});
  call_.value = tensor({1, 1, 20, 16});
  call_.out = tensor({1, 1, 10, 16});
  call_.direction = Direction::forward;
  call_.lse = {};
  const auto with_mask = [&](std::int64_t rows, std::int64_t columns) {
    const auto mask = Mask::parse("allowed[q, k] != 0",
                                  {{"allowed", TensorView::contiguous(values.data(), DType::i32, {rows, columns})}});
    EXPECT_TRUE(mask.has_value());
    call_.mask = &mask->state();
    return checked();
  };
  EXPECT_TRUE(with_mask(10, 20).has_value());
  expect_error(with_mask(10, 15), {.argument = "mask tensor 'allowed'",
                                   .got = "i32[10, 15] (axis 1 is 15)",
                                   .takes = "at least 20 along axis 1, indexed by k"});
  expect_error(with_mask(20, 10),
               {.argument = "mask tensor 'allowed'", .got = "i32[20, 10] (axis 1 is 10)", .takes = "at least 20"});
  expect_error(with_mask(9, 20), {.argument = "mask tensor 'allowed'",
                                  .got = "i32[9, 20] (axis 0 is 9)",
                                  .takes = "at least 10 along axis 0, indexed by q"});
}

TEST_F(CallErrors, DocumentListOfAnotherLength) {
  std::vector<std::int32_t> doc(16, 0);
  for (std::int64_t length : {7, 9}) {
    const auto mask = Mask::parse("document", {{"doc", TensorView::contiguous(doc.data(), DType::i32, {length})}});
    ASSERT_TRUE(mask.has_value());
    call_.mask = &mask->state();
    expect_error(checked(), {.argument = "mask tensor 'doc'",
                             .got = "axis 0 is " + std::to_string(length),
                             .takes = "8 along axis 0, indexed by q and k"});
  }
}

TEST_F(CallErrors, MaskTensorOnAnotherDevice) {
  move_to_cuda();
  std::vector<std::int32_t> doc(8, 0);
  const auto mask = Mask::parse("document", {{"doc", TensorView::contiguous(doc.data(), DType::i32, {8})}});
  ASSERT_TRUE(mask.has_value());
  call_.mask = &mask->state();
  expect_error(checked(DeviceKind::cuda),
               {.argument = "mask tensor 'doc'", .got = "a tensor on cpu", .takes = "mask.to(device) copies them"});
}

TEST_F(CallErrors, ScoreTensorTooShort) {
  std::vector<float> slopes(3, 1);
  const auto score = Score::parse("score + slope[h] * float(k - q)",
                                  {{"slope", TensorView::contiguous(slopes.data(), DType::f32, {3})}});
  ASSERT_TRUE(score.has_value()) << score.error().message();
  call_.score = &score->state();
  expect_error(checked(), {.argument = "score tensor 'slope'",
                           .got = "f32[3] (axis 0 is 3)",
                           .takes = "at least 4 along axis 0, indexed by h"});
}

TEST_F(CallErrors, LookedUpElementsThatAreNotAlignedAreRefusedWithTheirTensor) {
  std::vector<std::int32_t> doc(9, 0);
  TensorView view = TensorView::contiguous(doc.data(), DType::i32, {8});
  view.data = reinterpret_cast<std::byte*>(doc.data()) + 2;
  const auto mask = Mask::parse("document", {{"doc", view}});
  expect_error(mask, {.argument = "tensor 'doc'",
                      .got = "memory that does not start at a multiple of the element size",
                      .takes = "elements of 4 bytes, naturally aligned"});
}

TEST_F(CallErrors, TooManyTensors) {
  std::vector<std::int32_t> doc(8, 0);
  const auto one = Mask::parse("document", {{"doc", TensorView::contiguous(doc.data(), DType::i32, {8})}});
  ASSERT_TRUE(one.has_value());
  Mask many = *one;
  for (int count = 1; count < 13; ++count) many = many & *one;
  call_.mask = &many.state();
  expect_error(checked(), {ErrorCode::unsupported, "mask", "13 tensors", "at most 12"});
}

/// score + bias[h, k] * slope[at[q]]; the tensors are f16[4, 8], f32[3] and i32[6].
class ScoreGradientErrors : public CallErrors {
 protected:
  ScoreGradientErrors()
      : score_(Score::parse("score + bias[h, k] * slope[at[q]]", {{"bias", tensor({4, 8}, DType::f16)},
                                                                  {"slope", tensor({3}, DType::f32)},
                                                                  {"at", tensor({6}, DType::i32)}})
                   .value()) {
    call_.score = &score_.state();
  }
  void ask_for(const std::string& name, const TensorView& view) { call_.score_gradients = {{name, view}}; }

  Score score_;
};

TEST_F(ScoreGradientErrors, TensorsOfRealsOfTheScoreAreTaken) {
  call_.score_gradients = {{"slope", tensor({3}, DType::f32)}, {"bias", tensor({4, 8}, DType::f32)}};
  EXPECT_TRUE(checked());
  TensorView apart = tensor({4, 8}, DType::f32);
  apart.strides = {1, 4};  // keys outside
  ask_for("bias", apart);
  EXPECT_TRUE(checked());
}

TEST_F(ScoreGradientErrors, ANameThatTheScoreDoesNotLookUp) {
  ask_for("bios", tensor({4, 8}, DType::f32));
  expect_error(checked(), {.argument = "score_gradients", .got = "'bios'", .takes = "looks up: bias, slope"});
  ask_for("at", tensor({6}, DType::f32));
  expect_error(checked(), {.argument = "score_gradients", .got = "'at', a tensor of integers", .takes = "bias, slope"});
  call_.score = nullptr;
  expect_error(checked(), {.argument = "score_gradients", .got = "no score", .takes = "none without a score"});
}

TEST_F(ScoreGradientErrors, TheSameTensorTwice) {
  call_.score_gradients = {
      {"slope", tensor({3}, DType::f32)}, {"bias", tensor({4, 8}, DType::f32)}, {"slope", tensor({3}, DType::f32)}};
  expect_error(checked(), {.argument = "score_gradients", .got = "'slope' twice", .takes = "once"});
}

TEST_F(ScoreGradientErrors, AResultOfAnotherShapeDtypeOrDevice) {
  ask_for("bias", tensor({4, 8}, DType::f16));
  expect_error(checked(), {.argument = "score_gradients 'bias'", .got = "f16[4, 8]", .takes = "f32[4, 8]"});
  ask_for("bias", tensor({8, 4}, DType::f32));
  expect_error(checked(), {.argument = "score_gradients 'bias'", .got = "f32[8, 4]", .takes = "f32[4, 8]"});
  ask_for("bias", tensor({32}, DType::f32));
  expect_error(checked(), {.argument = "score_gradients 'bias'", .got = "f32[32]", .takes = "f32[4, 8]"});
  ask_for("bias", {});
  expect_error(checked(), {.argument = "score_gradients 'bias'", .got = "no tensor", .takes = "f32[4, 8]"});
  TensorView elsewhere = tensor({4, 8}, DType::f32);
  elsewhere.device = {DeviceKind::cuda, 1};
  ask_for("bias", elsewhere);
  expect_error(checked(), {.argument = "score_gradients 'bias'", .got = "cuda:1", .takes = "cpu"});
}

TEST_F(ScoreGradientErrors, AResultWhoseElementsMeet) {
  for (const std::array<std::int64_t, 2> strides : {std::array<std::int64_t, 2>{0, 1}, {7, 1}, {8, 0}, {1, 3}}) {
    TensorView meeting = tensor({4, 8}, DType::f32);
    meeting.strides = {strides[0], strides[1]};
    ask_for("bias", meeting);
    expect_error(checked(), {.argument = "score_gradients 'bias'", .got = "bring elements together", .takes = "apart"});
  }
  TensorView backwards = tensor({4, 8}, DType::f32);
  backwards.strides = {-8, 1};
  ask_for("bias", backwards);
  expect_error(checked(), {.argument = "score_gradients 'bias'", .got = "stride -8", .takes = "0 (broadcast) or more"});
}

TEST_F(CallErrors, SizesWhoseBytesDoNotFit64BitsAreRefused) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  constexpr std::int64_t longest = max_sequence_length;
  use_sizes(most, most, longest, longest);
  expect_error(checked(), {.code = ErrorCode::unsupported,
                           .argument = "query",
                           .got = "more than 281474976710656 rows",
                           .takes = "less than that"});
  use_sizes(most, most, 1, 1);
  expect_error(checked(),
               {.code = ErrorCode::unsupported, .argument = "query", .got = "rows", .takes = "split the batch"});
  use_sizes(1 << 20, 1 << 10, 1, longest);
  expect_error(checked(),
               {.code = ErrorCode::unsupported, .argument = "key", .got = "rows", .takes = "split the batch"});
  use_sizes(1, 1 << 12, longest, longest);
  expect_error(
      checked(),
      {.code = ErrorCode::unsupported, .argument = "query, key", .got = "pairs of tiles", .takes = "split the batch"});
}

TEST_F(CallErrors, TheLargestSizesThatAreTakenHaveWorkspacesOfWholeNumbersOf64Bits) {
  const auto backend = cuda::make_compile_only_backend({90, 0}, {});
  const Mask mask = Mask::parse("(q + b + h) % 7 >= k % 5").value();  // depends on all: the longest lists
  call_.mask = &mask.state();
  for (const auto& [batch, heads, q_len, kv_len] :
       {std::array<std::int64_t, 4>{1, 60, max_sequence_length, max_sequence_length},
        {(std::int64_t{1} << 31) - 1, 1 << 8, 1, 1},
        {1 << 10, 1 << 8, 1, max_sequence_length - 999},
        {1 << 9, 1 << 9, max_sequence_length - 999, 1}}) {
    use_sizes(batch, heads, q_len, kv_len);
    const auto shape = checked();
    ASSERT_TRUE(shape) << shape.error().message();
    kernel::KernelSpec spec;
    spec.direction = Direction::backward;
    spec.lowering = mask::LoweringKind::expression;
    spec.tile = {32, 32, 4, 1};
    backend::LaunchArgs args;
    args.shape = *shape;
    args.mask_program = &mask.state().program;
    const double problems = static_cast<double>(batch) * static_cast<double>(heads);
    const double q_tiles = std::ceil(static_cast<double>(q_len) / 32);
    const double k_tiles = std::ceil(static_cast<double>(kv_len) / 32);
    // For a row of tiles a count and a place in the order; for a tile an entry of two words in each list, and a bit, 64
    // of which are one patch of 8 x 8; for each direction of lists a counter, and one for every eight rows; for a query
    // its delta.
    const double q_groups = std::ceil(q_tiles / 8);
    const double k_groups = std::ceil(k_tiles / 8);
    const double words = 2 * (q_tiles + k_tiles) + 2 * 2 * q_tiles * k_tiles + 2 * q_groups * k_groups + 2 + q_groups +
                         k_groups + static_cast<double>(q_len);
    const double expected = 4 * problems * words;
    EXPECT_NEAR(static_cast<double>(backend->workspace_bytes(spec, args)), expected, expected * 1e-6);
  }
}

}  // namespace
}  // namespace flashspan::testing
