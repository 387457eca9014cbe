// process_restart_test.cpp -- another process, with the kernels from the disk and another number of threads, gives the
// same bits. Field case F037.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>

#include "attention/attention_fixture.hpp"
#include "tests/cli/process.hpp"

namespace flashspan::tests {
namespace {

class ProcessRestart : public AttentionTest {
 protected:
  /// Bits of the results of a process that may use `processors` of ours (0: all); `outcome` is that of all its kernels.
  std::string bits_of_a_process(int processors, const std::string& outcome) {
    const std::string result = folder_ / "result";
    const auto ran = cli_test::run_program({FLASHSPAN_REPEAT_CALLS, to_string(device()), to_string(dtype()),
                                            folder_ / "cache", result, std::to_string(processors)});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    std::string expected;
    for (int kernel = 0; kernel < 8; ++kernel) expected += (kernel == 2 || kernel == 3 ? "loaded" : outcome) + "\n";
    EXPECT_EQ(ran.out, expected) << "the second causal call has the kernels of the first";
    return cli_test::read_text(result);
  }

  cli_test::Folder folder_;
};
FLASHSPAN_ON_EVERY_PLACE(ProcessRestart);

TEST_P(ProcessRestart, AProcessThatFindsItsKernelsOnDiskRepeatsTheBitsOfTheOneThatCompiledThem) {
  const std::string first = bits_of_a_process(0, "built");
  ASSERT_GT(first.size(), 100000U);
  EXPECT_TRUE(bits_of_a_process(0, "disk") == first);
}

TEST_P(ProcessRestart, TheNumberOfThreadsDoesNotShowInTheBits) {
  if (on_cuda()) GTEST_SKIP() << "the threads of the host have no part in it";
  cpu_set_t ours;
  ASSERT_EQ(sched_getaffinity(0, sizeof(ours), &ours), 0);
  const int all = CPU_COUNT(&ours);
  if (all < 2) GTEST_SKIP() << "one processor only";
  const std::string alone = bits_of_a_process(1, "built");
  ASSERT_GT(alone.size(), 100000U);
  for (int processors = 2; processors <= std::min(all, 5); ++processors) {
    EXPECT_TRUE(bits_of_a_process(processors, "disk") == alone) << processors << " processors";
  }
  EXPECT_TRUE(bits_of_a_process(all, "disk") == alone) << all << " processors";
}

}  // namespace
}  // namespace flashspan::tests
