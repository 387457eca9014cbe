// The driver's absence and its error codes, in the user's words.
#include "runtime/cuda/driver_api.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cuda/fake_driver.hpp"

namespace flashspan::cuda {
namespace {

TEST(DriverErrors, NameTheCallTheCodeAndItsText) {
  const FakeDriver driver;
  const Error error = driver_error(driver.api(), "cuMemAlloc", cuda_error_invalid_value);
  EXPECT_EQ(error.code, ErrorCode::device_error);
  EXPECT_EQ(error.argument, "cuMemAlloc");
  EXPECT_EQ(error.got, "CUDA_ERROR_INVALID_VALUE (1): invalid argument");
}

TEST(DriverErrors, KeepTheNumberOfAnUnknownCode) {
  const FakeDriver driver;
  EXPECT_THAT(driver_error(driver.api(), "cuInit", 12345).got, testing::HasSubstr("12345"));
}

TEST(DriverErrors, AreNoneForSuccess) {
  const FakeDriver driver;
  EXPECT_TRUE(check(driver.api(), "cuInit", cuda_success));
}

TEST(DriverVersions, ReadAsMajorAndMinor) {
  EXPECT_EQ(cuda_version_text(13000), "13.0");
  EXPECT_EQ(cuda_version_text(12040), "12.4");
  EXPECT_EQ(cuda_version_text(12090), "12.9");
}

TEST(SystemDriver, IsATableOrANamedError) {
  const auto driver = system_driver();
  if (driver) {
    int version = 0;
    EXPECT_EQ((*driver)->driver_get_version(&version), cuda_success);
    EXPECT_GE(version, 12000);
  } else {
    EXPECT_EQ(driver.error().code, ErrorCode::no_device);
    EXPECT_FALSE(driver.error().argument.empty());
    EXPECT_FALSE(driver.error().takes.empty());
  }
}

}  // namespace
}  // namespace flashspan::cuda
