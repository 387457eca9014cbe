// Device memory through a driver that records: contexts, sizes, and what happens when calls fail.
#include "runtime/cuda/cuda_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/cuda/fake_driver.hpp"

namespace flashspan::cuda {
namespace {

class CudaMemory : public testing::Test {
 protected:
  FakeDriver driver_;
  CudaDevice device_ = *CudaDevice::open(driver_.api(), 1);

  void TearDown() override {
    EXPECT_TRUE(driver_.context_stack.empty()) << "every scope put back what was current";
    for (const FakeDriver::Call& call : driver_.calls) {
      if (call.name.starts_with("cuMem") || call.name == "cuStreamSynchronize") {
        EXPECT_EQ(call.context, FakeDriver::context_of(1)) << call.name;
      }
      // Another thread may be capturing a stream, which forbids such calls unless they are made in this mode.
      if (call.name.starts_with("cuMem")) {
        EXPECT_EQ(call.capture_mode, stream_capture_mode_relaxed) << call.name;
      }
    }
  }
};

TEST_F(CudaMemory, IsFreedWithItsLastOwner) {
  {
    auto memory = allocate(device_, 1000);
    ASSERT_TRUE(memory);
    const std::shared_ptr<void> second = *memory;
    memory->reset();
    ASSERT_NE(second, nullptr);
    ASSERT_EQ(driver_.live_memory.size(), 1u);
    EXPECT_EQ(driver_.live_memory.begin()->second, 1000u);
  }
  EXPECT_TRUE(driver_.live_memory.empty());
}

TEST_F(CudaMemory, OfNoBytesIsStillGiven) {
  const auto memory = allocate(device_, 0);
  ASSERT_TRUE(memory);
  EXPECT_NE(memory->get(), nullptr);
}

TEST_F(CudaMemory, RefusesANegativeSize) {
  const auto memory = allocate(device_, -1);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, ErrorCode::bad_argument);
}

TEST_F(CudaMemory, SaysHowMuchWasAskedForWhenThereIsNone) {
  driver_.failures["cuMemAlloc"] = 2;  // CUDA_ERROR_OUT_OF_MEMORY
  const auto memory = allocate(device_, 12345);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, ErrorCode::device_error);
  EXPECT_EQ(memory.error().argument, "cuMemAlloc");
  EXPECT_EQ(memory.error().detail, "12345 bytes on cuda:1");
}

TEST_F(CudaMemory, CopiedFromTheHostIsThereForEveryStream) {
  std::array<int, 4> host{};
  EXPECT_TRUE(copy_from_host(device_, host.data(), host.data(), sizeof(host)));
  const auto copy = std::ranges::find(driver_.calls, "cuMemcpyHtoD", &FakeDriver::Call::name);
  ASSERT_NE(copy, driver_.calls.end());
  ASSERT_NE(copy + 1, driver_.calls.end());
  EXPECT_EQ((copy + 1)->name, "cuStreamSynchronize");
}

TEST_F(CudaMemory, CopiesOfNothingCallNothing) {
  const std::size_t before = driver_.calls.size();
  EXPECT_TRUE(copy_from_host(device_, nullptr, nullptr, 0));
  EXPECT_TRUE(copy_to_host(device_, nullptr, nullptr, 0));
  EXPECT_EQ(driver_.calls.size(), before);
}

TEST_F(CudaMemory, PassesErrorsOfCopiesAndWaitsOn) {
  std::array<int, 4> host{};
  driver_.failures = {{"cuMemcpyHtoD", 1}, {"cuMemcpyDtoH", 1}, {"cuStreamSynchronize", 700}};
  const auto in = copy_from_host(device_, host.data(), host.data(), sizeof(host));
  ASSERT_FALSE(in);
  EXPECT_EQ(in.error().argument, "cuMemcpyHtoD");
  const auto out = copy_to_host(device_, host.data(), host.data(), sizeof(host));
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().argument, "cuMemcpyDtoH");
  const auto wait = synchronize(device_, {});
  ASSERT_FALSE(wait);
  EXPECT_THAT(wait.error().got, testing::HasSubstr("700"));
}

TEST_F(CudaMemory, CanBeFreedAfterTheDriverHasGone) {
  auto memory = allocate(device_, 16);
  ASSERT_TRUE(memory);
  driver_.failures["cuCtxPushCurrent"] = cuda_error_deinitialized;
  memory->reset();
  EXPECT_FALSE(driver_.called("cuMemFree"));
}

}  // namespace
}  // namespace flashspan::cuda
