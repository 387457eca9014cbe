// Compiling through the real NVRTC: report, errors, threads, and that nothing outside the compile is touched.
#include "runtime/cuda/nvrtc_compiler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/cuda/cubin.hpp"
#include "runtime/cuda/cubin_parameters.hpp"
#include "tests/cuda/nvrtc_fixture.hpp"

namespace flashspan::cuda {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using NvrtcCompile = WithNvrtc;

constexpr const char* add_one = R"(extern "C" __global__ void add_one(int* values) { values[threadIdx.x] += 1; })";

/// 64 live floats per thread in 32 registers.
constexpr const char* spilling = R"(
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* data) {
  float values[64];
  for (int i = 0; i < 64; ++i) values[i] = data[i * 1024 + threadIdx.x];
  for (int round = 0; round < 9; ++round)
    for (int i = 0; i < 64; ++i) values[i] = values[i] * values[(i + 7) % 64] + values[(i + 13) % 64];
  for (int i = 0; i < 64; ++i) data[i * 1024 + threadIdx.x] = values[i];
})";

/// An array that is indexed by a value known only at run time lives in local memory.
constexpr const char* stack_using = R"(
extern "C" __global__ void stack_using(int* data, int count) {
  int values[100];
  for (int i = 0; i < count; ++i) values[(i * data[i]) % 100] = data[i];
  data[threadIdx.x] = values[count];
})";

TEST_F(NvrtcCompile, MakesACubinForEveryArchitectureWeServe) {
  for (const int number : {80, 86, 89, 90, 100, 120}) {
    if (!std::binary_search(compiler().library().archs.begin(), compiler().library().archs.end(), number)) continue;
    const auto binary = compile(add_one, {"add_one"}, {number, 0});
    ASSERT_TRUE(binary) << number << ": " << binary.error().message();
    EXPECT_EQ(cubin_damage(binary->bytes()), std::nullopt);
    EXPECT_GT(binary->report.milliseconds, 0);
    EXPECT_EQ(binary->report.log, "");
  }
}

TEST_F(NvrtcCompile, ReportsRegistersAndSharedMemoryOfEveryEntry) {
  const auto binary = compile(std::string(add_one) + R"(
extern "C" __global__ void reverse(int* values) {
  __shared__ int held[100];
  held[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  values[threadIdx.x] = held[99 - threadIdx.x];
})",
                              {"add_one", "reverse"});
  ASSERT_TRUE(binary) << binary.error().message();
  ASSERT_EQ(binary->report.entries.size(), 2u);
  const backend::EntryReport& reverse = binary->report.entries[1];
  EXPECT_EQ(reverse.name, "reverse");
  EXPECT_EQ(reverse.shared_bytes, 400);
  EXPECT_GT(reverse.registers, 0);
  EXPECT_LE(reverse.registers, 32);
  EXPECT_EQ(reverse.spill_bytes, 0);
  EXPECT_EQ(reverse.stack_bytes, 0);
}

TEST_F(NvrtcCompile, RefusesAKernelThatSpills) {
  const auto binary = compile(spilling, {"spilling"});
  ASSERT_FALSE(binary);
  EXPECT_EQ(binary.error().code, ErrorCode::kernel_spills);
  EXPECT_EQ(binary.error().argument, "spilling");
  EXPECT_THAT(binary.error().got, HasSubstr("with 32 registers"));
  EXPECT_THAT(binary.error().got, Not(HasSubstr("0 bytes of spills and")));
}

TEST_F(NvrtcCompile, RefusesAKernelThatUsesAStack) {
  const auto binary = compile(stack_using, {"stack_using"});
  ASSERT_FALSE(binary);
  EXPECT_EQ(binary.error().code, ErrorCode::kernel_spills);
  EXPECT_THAT(binary.error().got, HasSubstr("a stack of 400 bytes"));
}

// Field case F080.
TEST_F(NvrtcCompile, ReturnsTheLogOfAnErrorWithFileAndLine) {
  const auto binary = compile("extern \"C\" __global__ void broken(int* p) {\n  *p = doc;\n}", {"broken"});
  ASSERT_FALSE(binary);
  EXPECT_EQ(binary.error().code, ErrorCode::compile_failed);
  EXPECT_EQ(binary.error().got, "NVRTC_ERROR_COMPILATION");
  EXPECT_THAT(binary.error().detail, HasSubstr("flashspan_kernel.cu(2): error: identifier \"doc\" is undefined"));
}

TEST_F(NvrtcCompile, ReturnsAnErrorOfPtxas) {
  const auto binary = compile("extern \"C\" __global__ void broken() { asm volatile(\"no.such.instruction;\"); }");
  ASSERT_FALSE(binary);
  EXPECT_EQ(binary.error().code, ErrorCode::compile_failed);
  EXPECT_THAT(binary.error().detail, HasSubstr("ptxas"));
}

TEST_F(NvrtcCompile, NamesAMissingHeader) {
  const auto binary = compile("#include \"generated/kernel_spec.cuh\"\n");
  ASSERT_FALSE(binary);
  EXPECT_EQ(binary.error().code, ErrorCode::compile_failed);
  EXPECT_THAT(binary.error().detail, HasSubstr("open source file \"generated/kernel_spec.cuh\""));
}

TEST_F(NvrtcCompile, DoesNotLookForHeadersInTheWorkingDirectory) {
  const std::string name = "flashspan_header_in_the_working_directory.cuh";
  std::ofstream(name) << "#define FOUND 1\n";
  const auto binary = compile("#include \"" + name + "\"\n");
  std::remove(name.c_str());
  ASSERT_FALSE(binary);
  EXPECT_THAT(binary.error().detail, HasSubstr("open source file \"" + name + "\""));
}

TEST_F(NvrtcCompile, TakesHeadersFromMemory) {
  kernel::SourceText source;
  source.programs = {
      {"", "#include \"tile/value.cuh\"\nextern \"C\" __global__ void fill(int* p) { *p = value; }\n", {"fill"}}};
  source.files = {{"ptx/number.cuh", "#pragma once\nconstexpr int number = 41;\n"},
                  {"tile/value.cuh", "#pragma once\n#include \"ptx/number.cuh\"\nconstexpr int value = number + 1;\n"}};
  const auto binary = compiler().compile(source, {80, 0});
  ASSERT_TRUE(binary) << binary.error().message();
}

TEST_F(NvrtcCompile, ReportsAnErrorInAHeaderUnderItsName) {
  kernel::SourceText source;
  source.programs = {{"", "#include \"generated/mask_program.cuh\"\n", {}}};
  source.files = {{"generated/mask_program.cuh", "\nint broken = ;\n"}};
  const auto binary = compiler().compile(source, {80, 0});
  ASSERT_FALSE(binary);
  EXPECT_THAT(binary.error().detail, HasSubstr("generated/mask_program.cuh(2): error"));
}

class TwoPrograms : public NvrtcCompile {
 protected:
  static kernel::SourceText source() {
    kernel::SourceText source;
    source.programs = {
        {"", "#include \"number.cuh\"\nextern \"C\" __global__ void b(int* p) { *p = number; }\n", {"b"}},
        {"other", "#include \"number.cuh\"\nextern \"C\" __global__ void a(int* p) { *p += number; }\n", {"a"}}};
    source.files = {{"number.cuh", "#pragma once\nconstexpr int number = 41;\n"}};
    return source;
  }
  [[nodiscard]] Error error_of(const kernel::SourceText& source) const {
    const auto binary = compiler().compile(source, {80, 0});
    EXPECT_FALSE(binary);
    return binary ? Error{} : binary.error();
  }
};

TEST_F(TwoPrograms, BecomeAModuleEachAndOneReport) {
  const auto binary = compiler().compile(source(), {80, 0});
  ASSERT_TRUE(binary) << binary.error().message();
  ASSERT_EQ(binary->modules.size(), 2u);
  EXPECT_EQ(binary->modules[0].program, "");
  EXPECT_EQ(binary->modules[1].program, "other");
  EXPECT_TRUE(cubin_kernel(binary->modules[0].bytes, "b"));
  EXPECT_TRUE(cubin_kernel(binary->modules[1].bytes, "a"));
  ASSERT_EQ(binary->report.entries.size(), 2u);
  EXPECT_EQ(binary->report.entries[0].name, "a");
  EXPECT_EQ(binary->report.entries[1].name, "b");
  const std::vector<std::byte> bytes = binary->bytes();
  const auto cubins = split_cubins(bytes);
  ASSERT_EQ(cubins.size(), 2u);
  EXPECT_TRUE(std::ranges::equal(cubins[1], binary->modules[1].bytes));
}

TEST_F(TwoPrograms, FailTogetherWithTheFirstErrorOfEither) {
  for (std::size_t broken = 0; broken < 2; ++broken) {
    kernel::SourceText text = source();
    text.programs[broken].main += "int broken_" + std::to_string(broken) + " = ;\n";
    EXPECT_EQ(error_of(text).code, ErrorCode::compile_failed);
    EXPECT_THAT(error_of(text).detail, HasSubstr("broken_" + std::to_string(broken)));
    text.programs[1 - broken].entry_points = {"missing"};
    EXPECT_THAT(error_of(text).message(), HasSubstr(broken == 0 ? "broken_0" : "missing"));
  }
}

TEST_F(TwoPrograms, KeepTheWarningsOfBoth) {
  kernel::SourceText text = source();
  text.programs[0].main += "extern \"C\" __global__ void c(int* p) { int first; *p = 1; }\n";
  text.programs[1].main += "extern \"C\" __global__ void d(int* p) { int second; *p = 1; }\n";
  const auto binary = compiler().compile(text, {80, 0});
  ASSERT_TRUE(binary) << binary.error().message();
  EXPECT_THAT(binary->report.log, HasSubstr("\"first\" was declared but never referenced"));
  EXPECT_THAT(binary->report.log, HasSubstr("\"second\" was declared but never referenced"));
}

TEST_F(TwoPrograms, AreOneModuleAsPtx) {
  const auto ptx = compiler().ptx(source(), {80, 0});
  ASSERT_TRUE(ptx) << ptx.error().message();
  EXPECT_THAT(*ptx, testing::AllOf(HasSubstr(".entry a("), HasSubstr(".entry b(")));
}

TEST_F(NvrtcCompile, RefusesAModuleWithoutAnEntryPointItMustDefine) {
  const auto binary = compile(add_one, {"add_one", "attention_forward"});
  ASSERT_FALSE(binary);
  EXPECT_EQ(binary.error().code, ErrorCode::compile_failed);
  EXPECT_THAT(binary.error().got, HasSubstr("attention_forward"));
}

TEST_F(NvrtcCompile, KeepsWarnings) {
  const auto binary = compile("extern \"C\" __global__ void warned(int* p) { int unused; *p = 1; }", {"warned"});
  ASSERT_TRUE(binary) << binary.error().message();
  EXPECT_THAT(binary->report.log, HasSubstr("\"unused\" was declared but never referenced"));
  EXPECT_THAT(binary->report.log, Not(HasSubstr("ptxas info")));
}

TEST_F(NvrtcCompile, NamesAnArchitectureThatNvrtcDoesNotKnow) {
  const auto binary = compile(add_one, {"add_one"}, {70, 0});
  const bool known = std::binary_search(compiler().library().archs.begin(), compiler().library().archs.end(), 70);
  if (known) GTEST_SKIP() << "this NVRTC still compiles for sm_70";
  ASSERT_FALSE(binary);
  EXPECT_EQ(binary.error().code, ErrorCode::unsupported);
  EXPECT_EQ(binary.error().argument, "arch");
  EXPECT_THAT(binary.error().got, HasSubstr("sm_70"));
}

TEST_F(NvrtcCompile, TakesAnArchitectureWithASuffix) {
  const auto binary = compile(add_one, {"add_one"}, {90, 'a'});
  EXPECT_TRUE(binary) << binary.error().message();
}

TEST_F(NvrtcCompile, RefusesTextOfAnotherLanguage) {
  kernel::SourceText source;
  source.language = kernel::Language::llvm_ir;
  const auto binary = compiler().compile(source, {80, 0});
  ASSERT_FALSE(binary);
  EXPECT_EQ(binary.error().code, ErrorCode::bad_argument);
}

TEST_F(NvrtcCompile, GivesTheSameBytesEveryTime) {
  const auto first = compile(add_one, {"add_one"}, {90, 0});
  const auto second = compile(add_one, {"add_one"}, {90, 0});
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->bytes(), second->bytes());
}

TEST_F(NvrtcCompile, RunsInFourThreadsAtOnce) {
  std::vector<std::vector<std::byte>> expected;
  const auto source_of = [](int thread) {
    return "extern \"C\" __global__ void add(int* p) { p[threadIdx.x] += " + std::to_string(thread) + "; }";
  };
  for (int thread = 0; thread < 4; ++thread) {
    const auto binary = compile(source_of(thread), {"add"});
    ASSERT_TRUE(binary) << binary.error().message();
    expected.push_back(binary->bytes());
  }
  std::atomic<int> equal = 0;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 5; ++round) {
        const auto binary = compile(source_of(thread), {"add"});
        if (binary && binary->bytes() == expected[static_cast<std::size_t>(thread)]) ++equal;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, 20);
}

TEST_F(NvrtcCompile, LeavesTheStackLimitOfTheProcessAlone) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_STACK, &before), 0);
  if (before.rlim_cur == RLIM_INFINITY) GTEST_SKIP() << "the stack is unlimited to begin with";
  std::atomic<bool> done = false;
  std::atomic<int> changes = 0;
  std::thread watcher([&] {
    while (!done) {
      rlimit now{};
      if (getrlimit(RLIMIT_STACK, &now) == 0 && now.rlim_cur != before.rlim_cur) ++changes;
    }
  });
  std::string kernels;  // enough of them that the watcher gets to look during every phase
  for (int kernel = 0; kernel < 50; ++kernel) {
    kernels += "extern \"C\" __global__ void k" + std::to_string(kernel) + "(float* p) { p[0] = sinf(p[1]) * " +
               std::to_string(kernel) + "; }\n";
  }
  const auto binary = compile(kernels);
  done = true;
  watcher.join();
  ASSERT_TRUE(binary) << binary.error().message();
  EXPECT_EQ(changes, 0);
}

TEST(NvrtcOptions, NameTheArchitectureAndNoPath) {
  const auto options = NvrtcCompiler::options(13, 0, {90, 'a'});
  EXPECT_THAT(options, Contains("--gpu-architecture=sm_90a"));
  for (const std::string& option : options) EXPECT_EQ(option.find('/'), std::string::npos) << option;
}

// Field case F073: a precompiled header would be shared between processes, outside the cache's rules.
TEST(NvrtcOptions, AskForNoPrecompiledHeader) {
  for (const std::string& option : NvrtcCompiler::options(13, 0, {90, 'a'})) {
    EXPECT_EQ(option.find("pch"), std::string::npos) << option;
  }
}

TEST(NvrtcOptions, TurnOffTheCacheWhereThereIsOne) {
  EXPECT_THAT(NvrtcCompiler::options(13, 0, {80, 0}), Contains("-no-cache"));
  EXPECT_THAT(NvrtcCompiler::options(12, 9, {80, 0}), Contains("-no-cache"));
  EXPECT_THAT(NvrtcCompiler::options(12, 8, {80, 0}), Not(Contains("-no-cache")));
}

TEST(NvrtcOptions, OfTheOutputAreThoseThatEveryVersionGets) {
  auto options = NvrtcCompiler::options_of_output({80, 0});
  EXPECT_EQ(NvrtcCompiler::options(12, 8, {80, 0}), options);
  options.emplace_back("-no-cache");
  EXPECT_EQ(NvrtcCompiler::options(13, 0, {80, 0}), options);
}

TEST(NvrtcOnDemandTest, SaysWhatIsMissingAndTriesAgain) {
  NvrtcOnDemand compiler(NvrtcSearch{"/nowhere", {}, 1});
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto got = compiler.get();
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ErrorCode::missing_component);
    const auto identity = compiler.identity();
    ASSERT_FALSE(identity);
    EXPECT_EQ(identity.error().code, ErrorCode::missing_component);
  }
}

}  // namespace
}  // namespace flashspan::cuda
