// processors_test.cpp -- the processors that the CPU back end says it has.
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>

#include "runtime/cpu/cpu_backend.hpp"

namespace flashspan::cpu {
namespace {

/// Leaves this process the first of the processors that it may run on.
void keep_one_processor() {
  cpu_set_t allowed, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) std::abort();
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  CPU_SET(first, &one);
  if (sched_setaffinity(0, sizeof(one), &one) != 0) std::abort();
}

TEST(CpuProcessorsDeathTest, AreThoseThatTheProcessMayRunOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process begun anew: threads are counted once
  EXPECT_EXIT(
      {
        keep_one_processor();
        std::exit(CpuBackend().facts().processors);
      },
      ::testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace flashspan::cpu
