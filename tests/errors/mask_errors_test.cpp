// Mistakes in the tensors, values and texts that masks and scores are made of.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "flashspan/device.hpp"
#include "flashspan/inspect.hpp"
#include "flashspan/mask.hpp"
#include "tests/errors/expect_error.hpp"

namespace flashspan::testing {
namespace {

const AttentionShape shape{2, 4, 2, 6, 8, 16, 16};

class MaskErrors : public ::testing::Test {
 protected:
  TensorView tensor(std::initializer_list<std::int64_t> sizes, DType dtype = DType::i32) {
    return TensorView::contiguous(memory_.data(), dtype, sizes);
  }
  std::vector<std::int32_t> memory_ = std::vector<std::int32_t>(4096, 0);
};

TEST_F(MaskErrors, UnknownNameInAnExpression) {
  const auto mask = Mask::parse("dco[q] == doc[k]", {{"doc", tensor({8})}});
  ASSERT_FALSE(mask.has_value());
  EXPECT_EQ(mask.error().code, ErrorCode::bad_expression);
  EXPECT_THAT(mask.error().message(), ::testing::HasSubstr("dco"));
  EXPECT_THAT(mask.error().detail, ::testing::HasSubstr("^"));
}

TEST_F(MaskErrors, TensorThatTheExpressionDoesNotUse) {
  expect_error(Mask::parse("doc[q] == doc[k]", {{"doc", tensor({8})}, {"dcos", tensor({8})}}),
               {.argument = "tensor 'dcos'", .got = "does not use", .takes = "tensors of the expression: doc"});
}

TEST_F(MaskErrors, ScalarThatTheExpressionDoesNotUse) {
  expect_error(Mask::parse("k <= q", {}, {{"width", std::int64_t{3}}}),
               {.argument = "scalar 'width'", .got = "does not use", .takes = "scalars of the expression: none"});
}

TEST_F(MaskErrors, NamedMaskWithoutItsTensor) {
  expect_error(Mask::parse("document"),
               {.argument = "tensor 'doc'", .got = "no tensor of that name", .takes = "a tensor of i32 of rank 1"});
}

TEST_F(MaskErrors, NamedMaskWithATensorOfAnotherKind) {
  expect_error(Mask::parse("document", {{"doc", tensor({2, 8})}}),
               {.argument = "tensor 'doc'", .got = "i32[2, 8]", .takes = "i32 of rank 1"});
  expect_error(Mask::parse("document", {{"doc", tensor({8}, DType::f32)}}),
               {.argument = "tensor 'doc'", .got = "f32[8]", .takes = "i32 of rank 1"});
}

TEST_F(MaskErrors, TensorWithoutMemoryRankOrFittingStrides) {
  TensorView no_memory = tensor({8});
  no_memory.data = nullptr;
  expect_error(Mask::parse("t[q] > 0", {{"t", no_memory}}),
               {.argument = "tensor 't'", .got = "no tensor", .takes = "rank 1 to 5"});
  expect_error(Mask::parse("t[q] > 0", {{"t", {}}}),
               {.argument = "tensor 't'", .got = "no tensor", .takes = "rank 1 to 5"});
  TensorView backwards = tensor({8});
  backwards.strides[0] = -1;
  expect_error(Mask::parse("t[q] > 0", {{"t", backwards}}),
               {.argument = "tensor 't'", .got = "stride -1 on axis 0", .takes = "0 (broadcast) or more"});
}

TEST_F(MaskErrors, TensorsOrScalarsOfOneName) {
  const auto mask = Mask::parse("t[q] > t", {{"t", tensor({8})}}, {{"t", std::int64_t{1}}});
  ASSERT_FALSE(mask.has_value());
  EXPECT_THAT(mask.error().message(), ::testing::HasSubstr("t"));
}

TEST_F(MaskErrors, ScalarThatIsNoNumber) {
  expect_error(Mask::parse("float(k) <= x", {}, {{"x", std::nan("")}}),
               {.argument = "scalar 'x'", .got = "nan", .takes = "a finite number"});
}

TEST_F(MaskErrors, NegativeWindow) {
  expect_error(Mask::window(-3, 0), {.argument = "left", .got = "-3", .takes = "0 or more"});
  expect_error(Mask::window(std::nullopt, -1), {.argument = "right", .got = "-1", .takes = "0 or more"});
}

TEST_F(MaskErrors, ShapeThatIsNone) {
  const AttentionShape uneven{2, 4, 3, 6, 8, 16, 16};
  expect_error(Mask::flashmask(uneven, tensor({2, 1, 8, 1}), true),
               {.argument = "query heads", .got = "4", .takes = "a multiple of the 3 key/value heads"});
  const AttentionShape negative{2, 4, 2, -6, 8, 16, 16};
  expect_error(Mask::key_ranges(negative, tensor({2, 1, 6, 1, 2})),
               {.argument = "q_len", .got = "-6", .takes = "0 to"});
}

TEST_F(MaskErrors, FlashMaskOfAnotherShape) {
  const std::string causal = "startend_row_indices (causal)";
  const std::string free = "startend_row_indices (not causal)";
  const std::string takes = "i32[1 | B = 2, 1 | Hkv = 2 | Hq = 4, Sk = 8, 1 | 2]";
  expect_error(Mask::flashmask(shape, tensor({2, 8, 1}), true),
               {.argument = causal, .got = "i32[2, 8, 1]", .takes = takes});
  expect_error(Mask::flashmask(shape, tensor({2, 1, 6, 1}), true),
               {.argument = causal, .got = "axis 2 is 6", .takes = takes});
  expect_error(Mask::flashmask(shape, tensor({2, 3, 8, 1}), true),
               {.argument = causal, .got = "axis 1 is 3", .takes = takes});
  expect_error(Mask::flashmask(shape, tensor({3, 1, 8, 1}), true),
               {.argument = causal, .got = "axis 0 is 3", .takes = takes});
  expect_error(Mask::flashmask(shape, tensor({2, 1, 8, 4}), true),
               {.argument = causal, .got = "axis 3 is 4", .takes = "1 | 2]"});
  expect_error(Mask::flashmask(shape, tensor({2, 1, 8, 1}), false),
               {.argument = free, .got = "axis 3 is 1", .takes = "2 | 4]"});
  expect_error(Mask::flashmask(shape, {}, true), {.argument = causal, .got = "no tensor", .takes = takes});
}

TEST_F(MaskErrors, IndicesThatAreNotIntegers) {
  memory_[0] = static_cast<std::int32_t>(0x7fc00000);  // NaN as f32
  expect_error(Mask::flashmask(shape, tensor({2, 1, 8, 1}, DType::f32), true),
               {.argument = "startend_row_indices (causal)", .got = "f32[2, 1, 8, 1]", .takes = "i32["});
  expect_error(Mask::scfa_index(shape, tensor({2, 1, 6}, DType::f32), tensor({2, 1, 8})),
               {.argument = "q_idx", .got = "f32[2, 1, 6]", .takes = "i32["});
}

TEST_F(MaskErrors, KeyRangesOfAnotherShape) {
  expect_error(Mask::key_ranges(shape, tensor({2, 1, 8, 1, 2})),
               {.argument = "ranges", .got = "axis 2 is 8", .takes = "Sq = 6"});
  expect_error(Mask::key_ranges(shape, tensor({2, 1, 6, 1, 3})),
               {.argument = "ranges", .got = "axis 4 is 3", .takes = "R, 2]"});
}

TEST_F(MaskErrors, KeyRangeOutsideTheKeys) {
  memory_[2 * 7] = 3;
  memory_[2 * 7 + 1] = 9;
  expect_error(Mask::key_ranges(shape, tensor({2, 1, 6, 2, 2})),
               {.argument = "ranges[0, 0, 3, 1]", .got = "[3, 9)", .takes = "within [0, 8)"});
  memory_[2 * 7] = -1;
  memory_[2 * 7 + 1] = 2;
  expect_error(Mask::key_ranges(shape, tensor({2, 1, 6, 2, 2})),
               {.argument = "ranges[0, 0, 3, 1]", .got = "[-1, 2)", .takes = "within [0, 8)"});
  memory_[2 * 7 + 1] = -1;
  EXPECT_TRUE(Mask::key_ranges(shape, tensor({2, 1, 6, 2, 2})).has_value()) << "[-1, -1) is an empty range";
}

TEST_F(MaskErrors, CsrOffsetsThatFallOrLeaveTheList) {
  std::vector<std::int32_t> offsets{0, 1, 2, 1, 2, 2, 2};
  const auto view = TensorView::contiguous(offsets.data(), DType::i32, {1, 1, 7});
  expect_error(
      Mask::key_ranges_csr(shape, view, tensor({2, 2})),
      {.argument = "offsets[0, 0]", .got = "1 at entry 3 after 2", .takes = "ascending positions within [0, N = 2]"});
  offsets = {0, 1, 2, 2, 2, 2, 3};
  expect_error(Mask::key_ranges_csr(shape, view, tensor({2, 2})),
               {.argument = "offsets[0, 0]", .got = "3 at entry 6", .takes = "N = 2"});
  expect_error(Mask::key_ranges_csr(shape, tensor({1, 1, 6}), tensor({2, 2})),
               {.argument = "offsets", .got = "axis 2 is 6", .takes = "Sq + 1 = 7"});
}

TEST_F(MaskErrors, SlicesOfDifferentCountsOrUnknownTypes) {
  expect_error(Mask::slices(shape, tensor({3, 2}), tensor({2, 2}), tensor({3})),
               {.argument = "k_ranges", .got = "axis 0 is 2", .takes = "N = 3"});
  std::vector<std::int32_t> types{0, 4, 1};
  const auto types_view = TensorView::contiguous(types.data(), DType::i32, {3});
  expect_error(Mask::slices(shape, tensor({3, 2}), tensor({3, 2}), types_view),
               {.argument = "types[1]", .got = "4", .takes = "0 (full), 1 (causal), 2 (inverse causal) or 3 (both)"});
  std::vector<std::int32_t> rows{0, 6, 2, 7};
  expect_error(
      Mask::slices(shape, TensorView::contiguous(rows.data(), DType::i32, {2, 2}), tensor({2, 2}), tensor({2})),
      {.argument = "q_ranges[1]", .got = "[2, 7)", .takes = "within [0, 6)"});
}

TEST_F(MaskErrors, ScfaListsOfAnotherLength) {
  expect_error(Mask::scfa_index(shape, tensor({2, 1, 6}), tensor({2, 1, 6})),
               {.argument = "k_idx", .got = "axis 2 is 6", .takes = "Sk = 8"});
  expect_error(Mask::scfa_hash(shape, tensor({2, 1, 6}), tensor({2, 1, 8}), tensor({2, 1, 8}), tensor({2, 1, 8})),
               {.argument = "q_hash", .got = "axis 2 is 8", .takes = "Sq = 6"});
}

TEST_F(MaskErrors, BlockListsThatDoNotFitTheLengths) {
  expect_error(Mask::block_list(shape, tensor({2, 1, 2}), tensor({2, 1, 2, 3}), 4, 0),
               {.argument = "block_k", .got = "0", .takes = "1 to"});
  expect_error(Mask::block_list(shape, tensor({2, 1, 6}), tensor({2, 1, 2, 3}), 4, 4),
               {.argument = "counts", .got = "axis 2 is 6", .takes = "ceil(Sq / block_q) = 2"});
  memory_[1] = 4;
  expect_error(Mask::block_list(shape, tensor({1, 1, 2}), tensor({1, 1, 2, 3}), 4, 4),
               {.argument = "counts[0, 0, 1]", .got = "4", .takes = "0 to N = 3"});
}

TEST_F(MaskErrors, ScoreTextThatIsABoolean) {
  const auto score = Score::parse("q >= k");
  ASSERT_FALSE(score.has_value());
  EXPECT_EQ(score.error().code, ErrorCode::bad_expression);
}

TEST_F(MaskErrors, TileMapOfABatchThatIsNone) {
  const Mask mask = Mask::causal();
  expect_error(tile_map(mask, shape, 2, 0, 4, 4), {.argument = "batch", .got = "2", .takes = "0 to 1"});
  expect_error(tile_map(mask, shape, 0, 4, 4, 4), {.argument = "head", .got = "4", .takes = "0 to 3"});
  expect_error(tile_map(mask, shape, 0, 0, 0, 4), {.argument = "block_m", .got = "0", .takes = "1 to"});
}

TEST_F(MaskErrors, TileMapOfTensorsThatTheHostCannotRead) {
  TensorView remote = tensor({8});
  remote.device = {DeviceKind::cuda, 0};
  const auto mask = Mask::parse("document", {{"doc", remote}});
  ASSERT_TRUE(mask.has_value());
  expect_error(tile_map(*mask, shape, 0, 0, 4, 4),
               {.argument = "mask tensor 'doc'", .got = "a tensor on cuda:0", .takes = "host memory (mask.to(cpu)"});
}

TEST(DeviceErrors, DevicesThatAreNone) {
  for (const char* text : {"gpu", "cuda:", "cuda:x", "cuda:-1", "", "cpu:1"}) {
    expect_error(device_from_string(text), {.argument = "device", .got = text, .takes = "auto, cpu, cuda or cuda:N"});
  }
}

TEST(DeviceErrors, BuffersAndCopiesOfImpossibleSizes) {
  expect_error(Buffer::allocate(Device{}, -1), {.argument = "bytes", .got = "-1", .takes = "0 or more"});
  auto buffer = Buffer::allocate(Device{}, 16);
  ASSERT_TRUE(buffer.has_value());
  std::vector<std::byte> host(32);
  expect_error(buffer->copy_from_host(host.data(), 17), {.argument = "bytes", .got = "17", .takes = "0 to 16"});
  expect_error(buffer->copy_to_host(host.data(), -1), {.argument = "bytes", .got = "-1", .takes = "0 to 16"});
}

}  // namespace
}  // namespace flashspan::testing
