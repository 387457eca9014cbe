// What ptxas -v says, read from logs as NVRTC 12.0 and 13.0 write them.
#include "runtime/cuda/ptxas_report.hpp"

#include <gtest/gtest.h>

namespace flashspan::cuda {
namespace {

constexpr const char* log_of_13_0 =
    R"(flashspan_kernel.cu(2): warning #177-D: variable "unused" was declared but never referenced

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'stack_one' for 'sm_90'
ptxas info    : Function properties for stack_one
ptxas         .     400 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers, 400 bytes cumulative stack size
ptxas info    : Compile time = 3.975 ms
ptxas info    : Compiling entry function 'shared_one' for 'sm_90'
ptxas info    : Function properties for shared_one
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 400 bytes smem
ptxas info    : Compile time = 1.192 ms
ptxas info    : Compiling entry function 'spill' for 'sm_90'
ptxas info    : Function properties for spill
ptxas         .     680 bytes stack frame, 1588 bytes spill stores, 1760 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 680 bytes cumulative stack size
ptxas info    : Compile time = 25.011 ms
)";

constexpr const char* log_of_12_0 = R"(ptxas info    : 304 bytes gmem
ptxas info    : Compiling entry function 'only' for 'sm_80'
ptxas info    : Function properties for only
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 9 registers, 400 bytes smem, 360 bytes cmem[0]
)";

TEST(PtxasReport, ListsEveryEntrySortedByName) {
  const PtxasReport report = parse_ptxas_report(log_of_13_0);
  ASSERT_EQ(report.entries.size(), 3u);
  EXPECT_EQ(report.entries[0].name, "shared_one");
  EXPECT_EQ(report.entries[1].name, "spill");
  EXPECT_EQ(report.entries[2].name, "stack_one");
}

TEST(PtxasReport, ReadsRegistersSharedMemorySpillsAndStack) {
  const PtxasReport report = parse_ptxas_report(log_of_13_0);
  ASSERT_EQ(report.entries.size(), 3u);
  EXPECT_EQ(report.entries[0].registers, 10);
  EXPECT_EQ(report.entries[0].shared_bytes, 400);
  EXPECT_EQ(report.entries[0].spill_bytes, 0);
  EXPECT_EQ(report.entries[0].stack_bytes, 0);
  EXPECT_EQ(report.entries[1].registers, 32);
  EXPECT_EQ(report.entries[1].spill_bytes, 1588 + 1760);
  EXPECT_EQ(report.entries[1].stack_bytes, 680);
  EXPECT_EQ(report.entries[2].shared_bytes, 0);
  EXPECT_EQ(report.entries[2].stack_bytes, 400);
}

TEST(PtxasReport, ReadsTheOlderFormWithoutBarriers) {
  const PtxasReport report = parse_ptxas_report(log_of_12_0);
  ASSERT_EQ(report.entries.size(), 1u);
  EXPECT_EQ(report.entries[0].registers, 9);
  EXPECT_EQ(report.entries[0].shared_bytes, 400);
  EXPECT_EQ(report.warnings, "");
}

TEST(PtxasReport, KeepsWarningsAndDropsItsOwnLines) {
  const std::string warnings = parse_ptxas_report(log_of_13_0).warnings;
  EXPECT_EQ(warnings,
            "flashspan_kernel.cu(2): warning #177-D: variable \"unused\" was declared but never referenced\n\n"
            "Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"");
}

TEST(PtxasReport, CountsFunctionsThatWereNotInlinedToTheirKernel) {
  const PtxasReport report = parse_ptxas_report(
      "ptxas info    : Compiling entry function 'kernel' for 'sm_90'\n"
      "ptxas info    : Function properties for kernel\n"
      "ptxas         .     16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n"
      "ptxas info    : Used 20 registers, used 0 barriers\n"
      "ptxas info    : Function properties for helper\n"
      "ptxas         .     32 bytes stack frame, 0 bytes spill stores, 2 bytes spill loads\n");
  ASSERT_EQ(report.entries.size(), 1u);
  EXPECT_EQ(report.entries[0].stack_bytes, 48);
  EXPECT_EQ(report.entries[0].spill_bytes, 14);
}

TEST(PtxasReport, OfNothingIsEmpty) {
  EXPECT_TRUE(parse_ptxas_report("").entries.empty());
  EXPECT_EQ(parse_ptxas_report("\n\n").warnings, "");
}

TEST(PtxasReport, KeepsPtxasWarningsAndAdvisories) {
  const PtxasReport report = parse_ptxas_report(
      "ptxas info    : (C7520) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
      "ptxas warning : Registers are spilled to local memory in function 'k'\n");
  EXPECT_NE(report.warnings.find("C7520"), std::string::npos);
  EXPECT_NE(report.warnings.find("ptxas warning"), std::string::npos);
}

}  // namespace
}  // namespace flashspan::cuda
