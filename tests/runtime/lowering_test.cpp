// lowering_test.cpp -- a lowering that is asked for goes with the mask, and what cannot be had is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flashspan/inspect.hpp"

namespace flashspan::testing {
namespace {

using ::testing::HasSubstr;

std::string forward_lowering(const Mask& mask) {
  const auto explanation = explain(mask, nullptr, {1, 1, 1, 64, 64, 64, 64}, DType::bf16, Arch{90, 'a'});
  EXPECT_TRUE(explanation.has_value()) << explanation.error().message();
  return explanation->directions[0].lowering;
}

TEST(AskedLowering, ReplacesTheChosenOneInItsDirectionOnly) {
  const Mask mask = Mask::causal();
  EXPECT_EQ(forward_lowering(mask), "row_ranges");
  const auto columns = mask.with_lowering(Direction::forward, LoweringKind::column_bounds);
  ASSERT_TRUE(columns.has_value()) << columns.error().message();
  EXPECT_EQ(forward_lowering(*columns), "column_bounds");
  const auto explanation = explain(*columns, nullptr, {1, 1, 1, 64, 64, 64, 64}, DType::bf16, Arch{90, 'a'});
  EXPECT_EQ(explanation->directions[0].lowering_reason, "asked for");
  EXPECT_EQ(explanation->directions[1].lowering, "column_bounds");
  EXPECT_NE(explanation->directions[1].lowering_reason, "asked for");
  EXPECT_THAT(explanation->directions[0].spec, HasSubstr("lowering = column_bounds"));
}

TEST(AskedLowering, GoesWithACopyAndIsForgottenByACombination) {
  const auto bits = Mask::causal().with_lowering(Direction::forward, LoweringKind::bit_tiles);
  ASSERT_TRUE(bits.has_value()) << bits.error().message();
  const auto copy = bits->to(Device{});
  ASSERT_TRUE(copy.has_value()) << copy.error().message();
  EXPECT_EQ(forward_lowering(*copy), "bit_tiles");
  EXPECT_EQ(forward_lowering(*bits & *bits), "row_ranges");
}

TEST(AskedLowering, ThatCannotGiveTheMaskIsRefused) {
  const auto refused = Mask::causal().with_lowering(Direction::forward, LoweringKind::none);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(refused.error().message(), "forward lowering: got none; takes a mask that shows every pair");
  EXPECT_FALSE(Mask::causal().with_lowering(Direction::backward, LoweringKind::row_ranges).has_value());
}

TEST(ChosenLowering, OfKeyRangesIsByTheirNumber) {
  const AttentionShape shape{1, 1, 1, 4, 4, 16, 16};
  for (const std::int64_t count : {0, 1, 2, 3, 4}) {
    std::vector<std::int32_t> ranges(static_cast<std::size_t>(4 * count * 2), 1);
    const auto mask = Mask::key_ranges(shape, TensorView::contiguous(ranges.data(), DType::i32, {1, 1, 4, count, 2}));
    ASSERT_TRUE(mask.has_value()) << mask.error().message();
    const auto explanation = explain(*mask, nullptr, shape, DType::f32, std::nullopt);
    ASSERT_TRUE(explanation.has_value()) << explanation.error().message();
    EXPECT_EQ(explanation->directions[0].lowering, count <= 2 ? "row_ranges" : "bit_tiles") << count;
    EXPECT_EQ(mask->with_lowering(Direction::forward, LoweringKind::row_ranges).has_value(), count <= 3) << count;
  }
}

}  // namespace
}  // namespace flashspan::testing
