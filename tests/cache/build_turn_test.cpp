// Processes that share a folder build a key once, and none of them waits for ever.
#include "cache/build_turn.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cache/kernel_cache.hpp"
#include "tests/cache/sample_entries.hpp"
#include "tests/cache/temporary_directory.hpp"
#include "tests/cache/worker_process.hpp"

namespace flashspan::cache {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// Locks of two descriptors keep each other out in one process as they do in two.

constexpr milliseconds for_ever = std::chrono::hours(1);
TEST(BuildTurn, IsThatOfTheNextOnceItsOwnerIsDone) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "key";
  std::atomic<bool> first_is_done = false;
  std::jthread second;
  {
    const BuildTurn first(file, for_ever);
    ASSERT_EQ(first.wait(), BuildTurn::Wait::over);
    second = std::jthread([&] {
      const BuildTurn turn(file, for_ever);
      EXPECT_EQ(turn.wait(), BuildTurn::Wait::over);
      EXPECT_TRUE(first_is_done);
    });
    std::this_thread::sleep_for(milliseconds(20));
    first_is_done = true;
  }
  second.join();
  EXPECT_FALSE(fs::exists(file));
}

TEST(BuildTurn, IsThatOfTheNextOnceItsOwnerIsKilled) {
  const TemporaryDirectory directory;
  WorkerProcess owner("hold-turn", directory.path());
  ASSERT_TRUE(owner.wait_for_output());
  DiskStore hasty(directory.path(), {}, milliseconds(5));
  ASSERT_EQ(hasty.take_turn(sample_key(1))->wait(), BuildTurn::Wait::too_long);
  owner.kill();
  ASSERT_EQ(owner.wait(), -SIGKILL);
  DiskStore patient(directory.path(), {}, for_ever);
  EXPECT_EQ(patient.take_turn(sample_key(1))->wait(), BuildTurn::Wait::over);
}

TEST(BuildTurn, OfAnotherKeyIsNotWaitedFor) {
  const TemporaryDirectory directory;
  DiskStore store(directory.path(), {}, for_ever);
  const auto one = store.take_turn(sample_key(1));
  EXPECT_EQ(store.take_turn(sample_key(2))->wait(), BuildTurn::Wait::over);
}

TEST(BuildTurn, ThatIsNotComeByInTimeStaysItsOwners) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "key";
  const BuildTurn owner(file, for_ever);
  EXPECT_EQ(BuildTurn(file, milliseconds(5)).wait(), BuildTurn::Wait::too_long);
  EXPECT_EQ(BuildTurn(file, milliseconds(5)).wait(), BuildTurn::Wait::too_long);
  EXPECT_TRUE(fs::exists(file));
}

TEST(BuildTurn, IsImpossibleWhereNoFileCanBe) {
  EXPECT_EQ(BuildTurn("/nowhere/key", for_ever).wait(), BuildTurn::Wait::impossible);
}

TEST(BuildTurn, InAFolderThatWasDeletedKeepsNobodyOut) {
  const TemporaryDirectory directory;
  const fs::path folder = directory.path() / "folder";
  fs::create_directory(folder);
  auto before = std::make_unique<BuildTurn>(folder / "key", for_ever);
  fs::remove_all(folder);
  fs::create_directory(folder);
  const BuildTurn after(folder / "key", for_ever);
  EXPECT_EQ(after.wait(), BuildTurn::Wait::over);
  before.reset();
  EXPECT_TRUE(fs::exists(folder / "key")) << "a turn removed the file of another";
}

TEST(BuildTurn, OfAKilledProcessIsSweptByAPruneAndOneThatIsHeldIsNot) {
  const TemporaryDirectory directory;
  DiskStore store(directory.path(), {}, milliseconds(5));
  WorkerProcess killed("hold-turn", directory.path());
  ASSERT_TRUE(killed.wait_for_output());
  killed.kill();
  killed.wait();
  const auto held = store.take_turn(sample_key(2));
  const fs::path folder = directory.path() / "building";
  ASSERT_TRUE(fs::exists(folder / sample_key(1).to_text()));
  EXPECT_TRUE(store.prune({}).empty());
  EXPECT_FALSE(fs::exists(folder / sample_key(1).to_text()));
  EXPECT_TRUE(fs::exists(folder / sample_key(2).to_text()));
  EXPECT_EQ(store.take_turn(sample_key(2))->wait(), BuildTurn::Wait::too_long);
}

/// Two caches over one folder are to each other as two processes are.
class CachesOfOneFolder : public testing::Test {
 protected:
  KernelCache cache(milliseconds longest_turn = for_ever) {
    return KernelCache(DiskStore(directory_.path(), log_, longest_turn), plenty, log_);
  }
  KernelCache::Builder builder() {
    return [this]() -> Result<Entry> {
      ++builds_;
      return sample_entry(1);
    };
  }
  /// Calls `meanwhile` while another cache builds key 1, which goes on until it returns.
  template <typename Meanwhile>
  void while_another_builds(const Meanwhile& meanwhile) {
    std::promise<void> begun, may_end;
    std::jthread other([&] {
      KernelCache slow = cache();
      const auto found = slow.get(sample_key(1), [&]() -> Result<Entry> {
        begun.set_value();
        may_end.get_future().wait();
        return builder()();
      });
      EXPECT_TRUE(found.has_value());
    });
    begun.get_future().wait();
    meanwhile(may_end);
  }

  TemporaryDirectory directory_;
  std::atomic<int> builds_ = 0;
  std::mutex mutex_;
  std::vector<std::string> lines_;
  LogSink log_ = [this](LogLevel, std::string_view line) {
    const std::scoped_lock lock(mutex_);
    lines_.emplace_back(line);
  };
};

TEST_F(CachesOfOneFolder, BuildAKeyOnce) {
  while_another_builds([&](std::promise<void>& may_end) {
    auto waiting = std::async(std::launch::async, [&] { return cache().get(sample_key(1), builder()); });
    std::this_thread::sleep_for(milliseconds(20));
    may_end.set_value();
    const auto found = waiting.get();
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->outcome, Outcome::disk);
    EXPECT_EQ(*found->entry, sample_entry(1));
  });
  EXPECT_EQ(builds_, 1);
  EXPECT_TRUE(lines_.empty()) << lines_.front();
}

TEST_F(CachesOfOneFolder, BuildTwiceRatherThanWaitForEver) {
  while_another_builds([&](std::promise<void>& may_end) {
    const auto found = cache(milliseconds(5)).get(sample_key(1), builder());
    may_end.set_value();
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->outcome, Outcome::built);
  });
  EXPECT_EQ(builds_, 2);
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_EQ(lines_.front(),
            "cache: another process is still building " + sample_key(1).to_text() + ", building it here too");
}

TEST_F(CachesOfOneFolder, BuildForThemselvesWhatFailedToBuildInAnother) {
  const auto refused = cache().get(sample_key(1), []() -> Result<Entry> {
    return Error{ErrorCode::compile_failed, "source", "nonsense", "CUDA C++", ""};
  });
  EXPECT_FALSE(refused.has_value());
  EXPECT_EQ(cache().get(sample_key(1), builder())->outcome, Outcome::built);
}

TEST_F(CachesOfOneFolder, MayAskEachOther) {
  // As a client and its service that were told of one folder do.
  KernelCache service = cache();
  const auto fetched = cache().get(sample_key(1), builder(), [&]() -> std::optional<Entry> {
    return *service.get(sample_key(1), builder())->entry;
  });
  ASSERT_TRUE(fetched.has_value());
  EXPECT_EQ(fetched->outcome, Outcome::service);
  EXPECT_EQ(*fetched->entry, sample_entry(1));
  EXPECT_EQ(builds_, 1);
}

TEST_F(CachesOfOneFolder, DoNotWaitForEachOtherWhereNothingCanBeKept) {
  for (const std::uint64_t number : {1, 2}) {
    std::ofstream(entry_path(directory_.path(), sample_key(number)).parent_path()) << "in the way of the folder";
  }
  KernelCache hindered = cache();
  EXPECT_EQ(hindered.get(sample_key(1), builder())->outcome, Outcome::built);
  const auto held = DiskStore(directory_.path(), {}).take_turn(sample_key(2));
  EXPECT_EQ(hindered.get(sample_key(2), builder())->outcome, Outcome::built);
}

}  // namespace
}  // namespace flashspan::cache
