// Results agree up to rounding; what is missing, displaced or not a number does not.
#include "runtime/api/compare_results.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

namespace flashspan::api {
namespace {

using ::testing::HasSubstr;

std::optional<std::string> disagree(const std::vector<float>& reference, const std::vector<float>& result) {
  return disagreement(std::as_bytes(std::span(reference)), std::as_bytes(std::span(result)), DType::f32,
                      tolerance_of(DType::bf16));
}

TEST(Results, AgreeUpToTheSpacingOfTheirType) {
  EXPECT_FALSE(disagree({1, -2, 0.5F, 0}, {1, -2, 0.5F, 0}));
  EXPECT_FALSE(disagree({1, -2, 0.5F, 0}, {1.003F, -2.004F, 0.5F, 0.001F}));
  EXPECT_THAT(disagree({1, -2, 0.5F, 0}, {1, -2, 0.8F, 0}).value_or(""), HasSubstr("element 2 is 0.8"));
  EXPECT_TRUE(disagree({1, 1, 1, 1}, {1.05F, 1.05F, 1.05F, 1.05F})) << "all a little off";
}

TEST(Results, ThatAreNotFiniteAgreeWithThemselvesAlone) {
  const float nan = std::nanf(""), infinity = INFINITY;
  EXPECT_FALSE(disagree({nan, infinity, -infinity, 1}, {-nan, infinity, -infinity, 1}));
  EXPECT_TRUE(disagree({1, 1}, {nan, 1}));
  EXPECT_TRUE(disagree({nan, 1}, {1, 1}));
  EXPECT_TRUE(disagree({infinity, 1}, {-infinity, 1}));
  EXPECT_TRUE(disagree({1, 1}, {infinity, 1}));
}

TEST(Results, OfAllZerosAgreeWithZerosAlone) {
  EXPECT_FALSE(disagree({0, 0}, {0, -0.0F}));
  EXPECT_TRUE(disagree({0, 0}, {0, 1e-6F}));
}

TEST(Results, OfSixteenBitsAreReadAsTheirType) {
  const auto compare = [](DType dtype, std::uint16_t reference, std::uint16_t result) {
    return disagreement(std::as_bytes(std::span(&reference, 1)), std::as_bytes(std::span(&result, 1)), dtype,
                        tolerance_of(dtype));
  };
  EXPECT_FALSE(compare(DType::bf16, 0x3f80, 0x3f81)) << "1 and the next";
  EXPECT_TRUE(compare(DType::bf16, 0x3f80, 0x4000)) << "1 and 2";
  EXPECT_FALSE(compare(DType::f16, 0x3c00, 0x3c01));
  EXPECT_TRUE(compare(DType::f16, 0x3c00, 0x4000));
  EXPECT_TRUE(compare(DType::f16, 0x3c00, 0x7e00)) << "NaN";
}

TEST(Poison, IsInTheElementsOfAViewAndNotBetweenThem) {
  std::vector<float> memory(12, 1);
  TensorView view = TensorView::contiguous(memory.data(), DType::f32, {3, 2});
  view.strides = {4, 1};
  std::vector<std::byte> bytes(span_bytes(view));
  EXPECT_EQ(bytes.size(), 10 * sizeof(float));
  std::memcpy(bytes.data(), memory.data(), bytes.size());
  poison(view, bytes);
  std::array<float, 10> poisoned{};
  std::memcpy(poisoned.data(), bytes.data(), bytes.size());
  for (const std::size_t inside : {0U, 1U, 4U, 5U, 8U, 9U}) EXPECT_TRUE(std::isnan(poisoned[inside])) << inside;
  for (const std::size_t between : {2U, 3U, 6U, 7U}) EXPECT_EQ(poisoned[between], 1) << between;
}

}  // namespace
}  // namespace flashspan::api
