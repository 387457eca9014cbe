// Which devices are offered, what is compiled for them, and whose context is current afterwards.
#include "runtime/cuda/cuda_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/fake_driver.hpp"
#include "tests/cuda/made_up_address.hpp"

namespace flashspan::cuda {
namespace {

TEST(ArchFor, IsTheCapabilityItselfWhereWeKnowIt) {
  EXPECT_EQ(arch_for({8, 0}), (Arch{80, 0}));
  EXPECT_EQ(arch_for({8, 6}), (Arch{86, 0}));
  EXPECT_EQ(arch_for({8, 9}), (Arch{89, 0}));
  EXPECT_EQ(arch_for({9, 0}), (Arch{90, 'a'}));
  EXPECT_EQ(arch_for({10, 0}), (Arch{100, 0}));
  EXPECT_EQ(arch_for({12, 0}), (Arch{120, 0}));
}

TEST(ArchFor, IsTheNearestLowerOneOfTheSameMajor) {
  EXPECT_EQ(arch_for({8, 7}), (Arch{86, 0}));
  EXPECT_EQ(arch_for({10, 3}), (Arch{100, 0}));
  EXPECT_EQ(arch_for({12, 1}), (Arch{120, 0}));
}

TEST(ArchFor, IsNothingBeforeCapability80AndForAnUnknownMajor) {
  EXPECT_EQ(arch_for({7, 5}), std::nullopt);
  EXPECT_EQ(arch_for({7, 0}), std::nullopt);
  EXPECT_EQ(arch_for({11, 0}), std::nullopt);
  EXPECT_EQ(arch_for({13, 0}), std::nullopt);
}

TEST(CudaDevices, AreThoseWeCanCompileForUnderTheDriversNumbers) {
  FakeDriver driver;
  driver.capabilities = {{7, 5}, {9, 0}, {6, 1}, {8, 6}};
  const auto devices = cuda_devices(driver.api());
  ASSERT_TRUE(devices);
  EXPECT_THAT(*devices, testing::ElementsAre(Device{DeviceKind::cuda, 1}, Device{DeviceKind::cuda, 3}));
}

TEST(CudaDevices, AreNoneWithoutAGpu) {
  FakeDriver driver;
  driver.capabilities.clear();
  const auto devices = cuda_devices(driver.api());
  ASSERT_TRUE(devices);
  EXPECT_TRUE(devices->empty());
}

TEST(OpeningADevice, RetainsItsPrimaryContextAndLeavesTheCurrentOneAlone) {
  FakeDriver driver;
  const auto device = CudaDevice::open(driver.api(), 1);
  ASSERT_TRUE(device);
  EXPECT_EQ(device->context, FakeDriver::context_of(1));
  EXPECT_FALSE(driver.called("cuCtxPushCurrent"));
}

TEST(OpeningADevice, NamesAnOrdinalThatDoesNotExist) {
  const FakeDriver driver;
  for (const int ordinal : {2, -1}) {
    const auto device = CudaDevice::open(driver.api(), ordinal);
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().code, ErrorCode::no_device);
    EXPECT_EQ(device.error().got, "cuda:" + std::to_string(ordinal));
    EXPECT_EQ(device.error().takes, "cuda:0 to cuda:1");
  }
}

TEST(OpeningADevice, RefusesOneBeforeCapability80) {
  FakeDriver driver;
  driver.capabilities = {{7, 5}};
  const auto device = CudaDevice::open(driver.api(), 0);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::unsupported);
  EXPECT_EQ(device.error().got, "cuda:0 of compute capability 7.5");
}

TEST(OpeningADevice, PassesADriverErrorOn) {
  FakeDriver driver;
  driver.failures["cuDevicePrimaryCtxRetain"] = cuda_error_invalid_value;
  const auto device = CudaDevice::open(driver.api(), 0);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().argument, "cuDevicePrimaryCtxRetain");
}

TEST(DeviceFacts, AreThoseOfTheDevice) {
  const FakeDriver driver;
  const auto device = CudaDevice::open(driver.api(), 1);
  ASSERT_TRUE(device);
  const auto facts = device->facts();
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->device, (Device{DeviceKind::cuda, 1}));
  EXPECT_EQ(facts->target.arch, (Arch{80, 0}));
  EXPECT_EQ(facts->target.kind, DeviceKind::cuda);
  EXPECT_EQ(facts->name, "Fake GPU");
  EXPECT_EQ(facts->processors, 132);
  EXPECT_EQ(facts->memory_bytes, std::int64_t{1} << 37);
  EXPECT_THAT(facts->detail, testing::HasSubstr("compute capability 8.0"));
  EXPECT_THAT(facts->detail, testing::HasSubstr("CUDA 13.0"));
}

TEST(ContextScopes, PutBackWhatWasCurrent) {
  FakeDriver driver;
  const auto theirs = made_up_address<CUcontext>(0x77);
  driver.context_stack = {theirs};
  const auto device = CudaDevice::open(driver.api(), 1);
  ASSERT_TRUE(device);
  {
    const ContextScope scope(*device);
    ASSERT_TRUE(scope.entered());
    EXPECT_EQ(driver.current_context(), FakeDriver::context_of(1));
  }
  EXPECT_EQ(driver.context_stack, std::vector<CUcontext>{theirs});
}

TEST(ContextScopes, LeaveTheStackAloneIfTheContextIsCurrentAlready) {
  FakeDriver driver;
  driver.context_stack = {FakeDriver::context_of(1)};
  const auto device = CudaDevice::open(driver.api(), 1);
  ASSERT_TRUE(device);
  {
    const ContextScope scope(*device);
    ASSERT_TRUE(scope.entered());
    EXPECT_EQ(driver.current_context(), FakeDriver::context_of(1));
  }
  EXPECT_FALSE(driver.called("cuCtxPushCurrent"));
  EXPECT_FALSE(driver.called("cuCtxPopCurrent"));
  EXPECT_EQ(driver.context_stack, std::vector<CUcontext>{FakeDriver::context_of(1)});
}

TEST(ContextScopes, PopNothingIfThePushFailed) {
  FakeDriver driver;
  const auto theirs = made_up_address<CUcontext>(0x77);
  driver.context_stack = {theirs};
  const auto device = CudaDevice::open(driver.api(), 1);
  ASSERT_TRUE(device);
  driver.failures["cuCtxPushCurrent"] = cuda_error_deinitialized;
  {
    const ContextScope scope(*device);
    EXPECT_FALSE(scope.entered());
  }
  EXPECT_EQ(driver.context_stack, std::vector<CUcontext>{theirs});
}

}  // namespace
}  // namespace flashspan::cuda
