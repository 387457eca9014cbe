// Many kernels at once: how many compile at a time, who waits how long, and what becomes of the rest.
#include "runtime/attention/prepare_all.hpp"

#include <gmock/gmock.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "flashspan/attention.hpp"
#include "flashspan/mask.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/compile_limits.hpp"
#include "tests/runtime/fake_backend.hpp"
#include "tests/runtime/private_folder.hpp"

namespace flashspan::testing {
namespace {

using attention::AttentionCall;
using attention::CompileQueue;
using Provided = Result<attention::KernelProvider::Provided>;

auto at_most(int limit) {
  return [limit](int running) { return running < limit; };
}

class PrepareAll : public ::testing::Test {
 protected:
  PrepareAll() {
    for (int number = 0; number < 12; ++number) {
      masks_.push_back(*Mask::parse("k <= q + " + std::to_string(number)));
    }
  }

  [[nodiscard]] AttentionCall call(std::size_t mask, std::int64_t length = 4) {
    AttentionCall filled;
    filled.query = filled.key = filled.value = filled.out =
        TensorView::contiguous(memory_.data(), DType::f32, {1, 1, length, 16});
    filled.mask = &masks_[mask].state();
    return filled;
  }

  std::vector<std::optional<Provided>> prepare(CompileQueue& queue, const std::vector<AttentionCall>& calls,
                                               double time_out_seconds = 0) {
    std::vector<std::optional<Provided>> results(calls.size());
    const auto done = [&](std::size_t place, const Provided& result) {
      EXPECT_FALSE(results[place].has_value()) << "call " << place << " is told twice";
      results[place] = result;
    };
    attention::prepare_all(op_, queue, calls, {time_out_seconds, done});
    EXPECT_TRUE(std::ranges::all_of(results, [](const auto& result) { return result.has_value(); }));
    return results;
  }

  std::vector<float> memory_ = std::vector<float>(1024);
  std::vector<Mask> masks_;
  std::shared_ptr<FakeBackend> backend_ = std::make_shared<FakeBackend>();
  LogSink log_ = [](LogLevel, std::string_view) {};
  attention::AttentionOp op_{backend_, std::make_shared<attention::KernelProvider>(
                                           backend_, std::make_shared<cache::KernelCache>(std::nullopt, 1 << 20, log_),
                                           attention::ProviderOptions{{}, log_})};
};

TEST_F(PrepareAll, EveryKernelIsCompiledOnceAndNoMoreAtATimeThanAreLet) {
  std::atomic<int> now = 0, most = 0;
  std::latch two_at_once(2);
  backend_->on_compile = [&] {
    const int running = ++now;
    int seen = most;
    while (seen < running && !most.compare_exchange_weak(seen, running)) {
    }
    if (backend_->compiles <= 2) two_at_once.arrive_and_wait();  // proves that they do run at the same time
    --now;
  };
  CompileQueue queue(at_most(2));
  std::vector<AttentionCall> calls;
  for (const std::int64_t length : {4, 8}) {
    for (std::size_t mask = 0; mask < masks_.size(); ++mask) calls.push_back(call(mask, length));
  }
  const auto results = prepare(queue, calls);
  for (const auto& result : results) EXPECT_TRUE(result->has_value());
  EXPECT_EQ(backend_->compiles, static_cast<int>(masks_.size()));
  EXPECT_EQ(backend_->runs, 0);
  EXPECT_EQ(most, 2);
  for (const AttentionCall& filled : calls) EXPECT_TRUE(op_.prepare(filled)->warm);
}

TEST_F(PrepareAll, OneBadCallFailsAloneAndInItsPlace) {
  CompileQueue queue(at_most(2));
  std::vector<AttentionCall> calls{call(0), call(1), call(2)};
  calls[1].value.dtype = DType::bf16;
  const auto results = prepare(queue, calls);
  EXPECT_TRUE(results[0]->has_value());
  ASSERT_FALSE(results[1]->has_value());
  EXPECT_EQ(results[1]->error().code, ErrorCode::bad_argument);
  EXPECT_TRUE(results[2]->has_value());
}

TEST_F(PrepareAll, ACompileThatTakesTooLongIsGivenUpByWhoWaitsAndKeptWhenItIsDone) {
  std::latch go_on(1);
  std::atomic<bool> first = true;
  backend_->on_compile = [&] {
    if (first.exchange(false)) go_on.wait();
  };
  CompileQueue queue(at_most(1));
  const auto results = prepare(queue, {call(0), call(1), call(2)}, 1);
  ASSERT_FALSE(results[0]->has_value());
  EXPECT_EQ(results[0]->error().code, ErrorCode::timed_out);
  EXPECT_TRUE(results[1]->has_value()) << "its place in the queue went to those behind it";
  EXPECT_TRUE(results[2]->has_value());
  go_on.count_down();
  EXPECT_TRUE(op_.prepare(call(0)).has_value()) << "waits for the compile under way";
  EXPECT_EQ(backend_->compiles, 3);
}

TEST_F(PrepareAll, TheTextsOfACallMayGoBeforeItsCompileIsDone) {
  std::latch go_on(1);
  backend_->on_compile = [&] { go_on.wait(); };
  backend_->compile_failures = 1;  // whose message takes the text
  CompileQueue queue(at_most(1));
  {
    const auto mask = Mask::parse("(q + k) % 3 == 1");
    AttentionCall filled = call(0);
    filled.mask = &mask->state();
    EXPECT_FALSE(prepare(queue, {filled}, 0.01)[0]->has_value());
  }
  go_on.count_down();
}

TEST_F(PrepareAll, TasksThatHaveNotBegunGoWithTheQueue) {
  std::atomic<int> done = 0;
  std::latch begun(1), go_on(1);
  std::jthread opener;
  {
    CompileQueue queue(at_most(1));
    queue.add([&] {
      begun.count_down();
      go_on.wait();
      ++done;
    });
    for (int i = 0; i < 5; ++i) queue.add([&] { ++done; });
    begun.wait();
    opener = std::jthread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      go_on.count_down();
    });
  }
  EXPECT_EQ(done, 1);
}

TEST(CompileLimits, AnotherCompileTakesACoreAndMemoryAndOneMayAlwaysRun) {
  const attention::MachineResources roomy{4, std::int64_t{8} << 30};
  EXPECT_TRUE(attention::may_compile(roomy, 0, 3));
  EXPECT_FALSE(attention::may_compile(roomy, 0, 4));
  EXPECT_TRUE(attention::may_compile(roomy, 6, 5)) << "as many as the caller says";
  EXPECT_FALSE(attention::may_compile(roomy, 1, 1));
  const attention::MachineResources short_of_memory{4, attention::compile_bytes - 1};
  EXPECT_FALSE(attention::may_compile(short_of_memory, 0, 1));
  EXPECT_TRUE(attention::may_compile(short_of_memory, 0, 0));
  EXPECT_TRUE(attention::may_compile({4, std::nullopt}, 0, 3)) << "a system that does not tell";
}

TEST(CompileLimits, MemoryIsWhatTheSystemAndTheControlGroupBothLeave) {
  PrivateFolder folder;
  const auto write = [&](const char* name, const char* text) {
    const auto path = folder.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  EXPECT_EQ(attention::machine_resources(folder.path()).available_bytes, std::nullopt);
  write("proc/meminfo", "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    9000 kB\n");
  EXPECT_EQ(attention::machine_resources(folder.path()).available_bytes, 9000 << 10);
  write("sys/fs/cgroup/memory.max", "max\n");
  write("sys/fs/cgroup/memory.current", "1024\n");
  EXPECT_EQ(attention::machine_resources(folder.path()).available_bytes, 9000 << 10);
  write("sys/fs/cgroup/memory.max", "3072\n");
  EXPECT_EQ(attention::machine_resources(folder.path()).available_bytes, 2048);
  EXPECT_GT(attention::machine_resources().available_bytes.value_or(1), 0);
}

TEST(CompileLimits, CoresAreThoseThatTheProcessMayUse) {
  PrivateFolder folder;
  const std::filesystem::path process = folder.path() / "proc/thread-self";
  std::filesystem::create_directories(process);
  const auto cores_with = [&](const char* allowed) {
    std::ofstream(process / "status") << "Name:\tprogram\nCpus_allowed:\t" << allowed << "\nCpus_allowed_list:\t0-9\n";
    return attention::machine_resources(folder.path()).cores;
  };
  EXPECT_EQ(cores_with("3"), 2);
  EXPECT_EQ(cores_with("000000f0,00000001"), 5);
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  EXPECT_LE(attention::machine_resources().cores, CPU_COUNT(&allowed));
}

TEST(CompileLimits, CoresAreNoMoreThanTheControlGroupsShare) {
  PrivateFolder folder;
  const std::filesystem::path group = folder.path() / "sys/fs/cgroup";
  std::filesystem::create_directories(group);
  const auto cores_with = [&](const char* quota) {
    std::ofstream(group / "cpu.max") << quota;
    return attention::machine_resources(folder.path()).cores;
  };
  const int all = cores_with("max 100000\n");
  EXPECT_EQ(cores_with("100000 100000\n"), 1);
  EXPECT_EQ(cores_with("10000 100000\n"), 1) << "less than a core is one";
  EXPECT_EQ(cores_with("150000 100000\n"), std::min(all, 2)) << "rounded up";
  EXPECT_EQ(cores_with("100000000 100000\n"), all);
}

TEST(PrepareAllOnTheCpu, GivesRecordsInTheOrderOfTheCalls) {
  AttentionOptions options;
  options.cache_dir = "";
  options.log = [](LogLevel, std::string_view) {};
  auto attention = Attention::open(Device{}, options);
  if (!attention) GTEST_SKIP() << attention.error().message();
  std::vector<float> memory(256);
  const Mask causal = Mask::causal();
  ForwardCall forward;
  forward.query = forward.key = forward.value = forward.out =
      TensorView::contiguous(memory.data(), DType::f32, {1, 1, 4, 16});
  forward.lse = TensorView::contiguous(memory.data(), DType::f32, {1, 1, 4});
  forward.mask = &causal;
  BackwardCall backward;
  backward.query = backward.key = backward.value = backward.out = backward.out_gradient = forward.query;
  backward.lse = forward.lse;
  backward.query_gradient = backward.key_gradient = backward.value_gradient = forward.query;
  backward.mask = &causal;
  std::vector<std::size_t> told;
  PrepareOptions prepare;
  prepare.progress = [&](std::size_t place, const Result<KernelRecord>&) { told.push_back(place); };
  const auto records = attention->prepare_all({forward, backward, forward}, prepare);
  ASSERT_EQ(records.size(), 3U);
  for (const auto& record : records) ASSERT_TRUE(record.has_value()) << record.error().message();
  EXPECT_THAT(records[0]->spec, ::testing::StartsWith("forward"));
  EXPECT_THAT(records[1]->spec, ::testing::StartsWith("backward"));
  EXPECT_EQ(records[2]->key, records[0]->key);
  EXPECT_THAT(told, ::testing::UnorderedElementsAre(0, 1, 2));
  ASSERT_TRUE(attention->freeze());
  EXPECT_EQ(attention->prepare(forward)->outcome, "loaded");
  forward.mask = nullptr;
  const auto bytes = attention->workspace_bytes(forward);
  std::vector<std::byte> workspace(static_cast<std::size_t>(*bytes));
  forward.workspace = workspace.data();
  forward.workspace_bytes = *bytes;
  const auto refused = attention->forward(forward);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::not_prepared);
}

}  // namespace
}  // namespace flashspan::testing
