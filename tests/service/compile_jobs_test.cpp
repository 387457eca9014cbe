// One compile per spec, those that are waited for first, and no wait past its time.
#include "runtime/service/compile_jobs.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <latch>
#include <memory>
#include <thread>

#include "tests/service/service_fixture.hpp"

namespace flashspan::testing {
namespace {

using service::CompileJobs;
using namespace std::chrono_literals;

CompileJobs::Clock::time_point in(std::chrono::milliseconds time) { return CompileJobs::Clock::now() + time; }
bool one_at_a_time(int running) { return running == 0; }

/// Blocks the only place of a queue until it is released.
class Plug {
 public:
  explicit Plug(CompileJobs& jobs) {
    EXPECT_TRUE(jobs.run_ahead(spec_of(1000), [gate = gate_] { gate->started.count_down(), gate->released.wait(); }));
    gate_->started.wait();
  }
  void release() { gate_->released.count_down(); }

 private:
  /// Of the waiting job too, which is still on its way out when the test ends.
  struct Gate {
    std::latch started{1}, released{1};
  };
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
};

/// Waits until so many jobs that are waited for are queued.
void wait_for_queued(CompileJobs& jobs, std::size_t count) {
  while (jobs.status().queued != count) std::this_thread::yield();
}

TEST(CompileJobs, AreDoneOnceHoweverManyWaitForThem) {
  constexpr int count = 8;
  std::atomic<int> works = 0, done = 0;
  CompileJobs jobs([](int running) { return running < 4; }, 1h, 100);
  const auto work = [&] {
    ++works;
    while (jobs.status().running.front().waiting != count) std::this_thread::yield();
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&] {
        if (jobs.run(spec_of(1), work, in(1min)) == CompileJobs::Ended::done) ++done;
      });
    }
  }
  EXPECT_EQ(done, count);
  EXPECT_EQ(works, 1);
}

TEST(CompileJobs, ThoseThatAreWaitedForComeFirstAndAWaitForOneAheadPromotesIt) {
  std::vector<int> order;
  CompileJobs jobs(one_at_a_time, 1h, 100);
  Plug plug(jobs);
  for (const int number : {1, 2, 3}) {
    EXPECT_TRUE(jobs.run_ahead(spec_of(number), [&order, number] { order.push_back(number); }));
  }
  EXPECT_EQ(jobs.status().queued_ahead, 3U);
  {
    std::vector<std::jthread> waiting;
    waiting.emplace_back([&] { jobs.run(spec_of(4), [&order] { order.push_back(4); }, in(1min)); });
    wait_for_queued(jobs, 1);
    waiting.emplace_back([&] { jobs.run(spec_of(3), [&order] { order.push_back(-3); }, in(1min)); });
    wait_for_queued(jobs, 2);
    EXPECT_EQ(jobs.status().queued_ahead, 2U);
    plug.release();
  }
  EXPECT_EQ(jobs.run(spec_of(5), [&order] { order.push_back(5); }, in(1min)), CompileJobs::Ended::done);
  while (jobs.status().done != 6) std::this_thread::yield();
  ASSERT_EQ(order.size(), 5U);
  EXPECT_EQ(order[0], 4);
  EXPECT_EQ(order[1], 3) << "the work that was queued first, not that of the one who waits for it";
  EXPECT_THAT(order, ::testing::UnorderedElementsAre(1, 2, 3, 4, 5));
}

TEST(CompileJobs, AWaitEndsWithItsTimeAndTheJobGoesOn) {
  std::atomic<int> works = 0;
  CompileJobs jobs(one_at_a_time, 1h, 100);
  Plug plug(jobs);
  EXPECT_EQ(jobs.run(spec_of(1), [&] { ++works; }, in(10ms)), CompileJobs::Ended::timed_out);
  EXPECT_EQ(works, 0);
  plug.release();
  while (jobs.status().done != 2) std::this_thread::yield();
  EXPECT_EQ(works, 1);
}

TEST(CompileJobs, OneThatTakesTooLongGivesItsPlaceAway) {
  std::latch released(1);
  CompileJobs jobs(one_at_a_time, 20ms, 100);
  std::jthread slow([&] { jobs.run(spec_of(1), [&] { released.wait(); }, in(1min)); });
  while (jobs.status().running.empty()) std::this_thread::yield();
  EXPECT_EQ(jobs.run(spec_of(2), [] {}, in(1min)), CompileJobs::Ended::done) << "beside the one that hangs";
  released.count_down();
}

TEST(CompileJobs, TooManyAreRefused) {
  CompileJobs jobs(one_at_a_time, 1h, 2);
  Plug plug(jobs);
  EXPECT_TRUE(jobs.run_ahead(spec_of(1), [] {}));
  EXPECT_FALSE(jobs.run_ahead(spec_of(2), [] {}));
  EXPECT_EQ(jobs.run(spec_of(3), [] {}, in(1min)), CompileJobs::Ended::full);
  EXPECT_TRUE(jobs.run_ahead(spec_of(1), [] {})) << "it is under way already";
  plug.release();
}

TEST(CompileJobs, StoppingEndsEveryWait) {
  CompileJobs jobs(one_at_a_time, 1h, 100);
  Plug plug(jobs);
  std::jthread waiting([&] { EXPECT_EQ(jobs.run(spec_of(1), [] {}, in(1min)), CompileJobs::Ended::stopped); });
  wait_for_queued(jobs, 1);
  jobs.stop();
  waiting.join();
  EXPECT_EQ(jobs.run(spec_of(2), [] {}, in(1min)), CompileJobs::Ended::stopped);
  EXPECT_FALSE(jobs.run_ahead(spec_of(2), [] {}));
  plug.release();
}

TEST(CompileJobs, TheStatusTellsWhatRunsAndWhoWaits) {
  CompileJobs jobs(one_at_a_time, 1h, 100);
  Plug plug(jobs);
  const auto status = jobs.status();
  ASSERT_EQ(status.running.size(), 1U);
  EXPECT_EQ(status.running.front().spec, spec_of(1000).summary());
  EXPECT_EQ(status.running.front().waiting, 0);
  EXPECT_EQ(status.queued, 0U);
  plug.release();
  while (jobs.status().done != 1) std::this_thread::yield();
  EXPECT_TRUE(jobs.status().running.empty());
}

}  // namespace
}  // namespace flashspan::testing
