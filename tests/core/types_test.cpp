// Names of types survive a round trip, and errors read as one line.
#include "flashspan/core/types.hpp"

#include <gtest/gtest.h>

#include "flashspan/core/error.hpp"
#include "flashspan/core/tensor.hpp"

namespace flashspan {
namespace {

TEST(Types, ArchSurvivesARoundTrip) {
  for (const char* text : {"sm_80", "sm_86", "sm_90a", "sm_100f", "sm_120"}) {
    const auto arch = arch_from_string(text);
    ASSERT_TRUE(arch.has_value()) << text;
    EXPECT_EQ(to_string(*arch), text);
  }
  for (const char* text : {"", "sm_", "sm_9", "compute_80", "sm_90x", "sm_90aa", "90"}) {
    EXPECT_FALSE(arch_from_string(text).has_value()) << text;
  }
}

TEST(Types, DTypeSurvivesARoundTrip) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32}) {
    EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
  }
  EXPECT_FALSE(dtype_from_string("f64").has_value());
}

TEST(Errors, MessageNamesArgumentGotAndTakes) {
  const Error error{ErrorCode::bad_argument, "query", "f32[2]", "a tensor of rank 4", ""};
  EXPECT_EQ(error.message(), "query: got f32[2]; takes a tensor of rank 4");
}

TEST(TensorViews, SwappingAxesKeepsTheMemory) {
  float data = 0;
  const TensorView bshd = TensorView::contiguous(&data, DType::f32, {2, 5, 3, 8});
  const TensorView bhsd = bshd.with_axes_swapped(1, 2);
  EXPECT_EQ(bhsd.shape[1], 3);
  EXPECT_EQ(bhsd.shape[2], 5);
  EXPECT_EQ(bhsd.strides[1], 8);
  EXPECT_EQ(bhsd.strides[2], 24);
  EXPECT_EQ(bhsd.element_count(), bshd.element_count());
  EXPECT_EQ(to_string(bhsd), "f32[2, 3, 5, 8]");
}

}  // namespace
}  // namespace flashspan
