// Work on a stream is timed between two events, which are gone afterwards whatever happens.
#include "runtime/cuda/stream_timer.hpp"

#include <gtest/gtest.h>

#include "tests/cuda/fake_driver.hpp"

namespace flashspan::cuda {
namespace {

TEST(StreamTimer, GivesTheMillisecondsBetweenTheEventsAroundTheWork) {
  FakeDriver driver;
  driver.elapsed_milliseconds = 2.5F;
  bool queued = false;
  const auto taken = stream_milliseconds(driver.api(), nullptr, [&]() -> Result<void> {
    queued = driver.called("cuEventRecord") && !driver.called("cuEventSynchronize");
    return {};
  });
  ASSERT_TRUE(taken) << taken.error().message();
  EXPECT_EQ(*taken, 2.5);
  EXPECT_TRUE(queued) << "after the first event and before anybody waits";
  EXPECT_EQ(driver.live_events, 0);
}

TEST(StreamTimer, ReturnsTheFailureOfTheWorkAndOfEveryCall) {
  for (const char* call : {"cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime"}) {
    FakeDriver driver;
    driver.failures[call] = cuda_error_invalid_value;
    const auto taken = stream_milliseconds(driver.api(), nullptr, [] { return Result<void>{}; });
    ASSERT_FALSE(taken) << call;
    EXPECT_EQ(taken.error().argument, call);
    EXPECT_EQ(driver.live_events, 0) << call;
  }
  FakeDriver driver;
  const auto taken = stream_milliseconds(
      driver.api(), nullptr, []() -> Result<void> { return Error{ErrorCode::unsupported, "work", "", "", ""}; });
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().argument, "work");
  EXPECT_EQ(driver.live_events, 0);
}

}  // namespace
}  // namespace flashspan::cuda
