// Memory over disk over a builder: built once, found where it should be, and nobody waits for ever.
#include "cache/kernel_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <fstream>
#include <thread>

#include "tests/cache/sample_entries.hpp"
#include "tests/cache/temporary_directory.hpp"

namespace flashspan::cache {
namespace {

Result<Entry> must_not_build() {
  ADD_FAILURE() << "built again";
  return Entry{};
}

KernelCache::Builder build(std::uint64_t number) {
  return [number]() -> Result<Entry> { return sample_entry(number); };
}

Error refusal() { return {ErrorCode::compile_failed, "source", "nonsense", "CUDA C++", "line 1"}; }

TEST(KernelCache, IsFoundInMemoryThenOnDisk) {
  const TemporaryDirectory directory;
  {
    KernelCache cache(DiskStore(directory.path(), {}), plenty, {});
    const auto built = cache.get(sample_key(1), build(1));
    ASSERT_TRUE(built);
    EXPECT_EQ(built->outcome, Outcome::built);
    EXPECT_EQ(*built->entry, sample_entry(1));
    const auto remembered = cache.get(sample_key(1), must_not_build);
    ASSERT_TRUE(remembered);
    EXPECT_EQ(remembered->outcome, Outcome::memory);
    EXPECT_EQ(remembered->entry, built->entry);
  }
  KernelCache cache(DiskStore(directory.path(), {}), plenty, {});
  const auto read = cache.get(sample_key(1), must_not_build);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->outcome, Outcome::disk);
  EXPECT_EQ(*read->entry, sample_entry(1));
  EXPECT_EQ(cache.get(sample_key(1), must_not_build)->outcome, Outcome::memory);
}

TEST(KernelCache, WorksWithoutADisk) {
  KernelCache cache(std::nullopt, plenty, {});
  EXPECT_EQ(cache.get(sample_key(1), build(1))->outcome, Outcome::built);
  EXPECT_EQ(cache.get(sample_key(1), must_not_build)->outcome, Outcome::memory);
}

TEST(KernelCache, TwoThousandEntriesTakeNoMoreMemoryThanTheLimit) {
  constexpr std::size_t limit = std::size_t{2} << 20, bytes = 20000;
  KernelCache cache(std::nullopt, limit, {});
  for (std::uint64_t number = 0; number < 2000; ++number) {
    ASSERT_TRUE(cache.get(sample_key(number), [number]() -> Result<Entry> { return sample_entry(number, bytes); }));
  }
  std::uint64_t first = 0;
  while (!cache.find(sample_key(first))) ++first;
  for (std::uint64_t number = first; number < 2000; ++number) EXPECT_TRUE(cache.find(sample_key(number))) << number;
  EXPECT_LE((2000 - first) * bytes, limit);
  EXPECT_GT((2000 - first) * bytes, limit - limit / 10) << "room is left";
}

TEST(KernelCache, ForgetsTheLeastRecentlyUsedWhenMemoryIsFull) {
  KernelCache cache(std::nullopt, 3 * 1200, {});
  const auto get = [&cache](std::uint64_t number) {
    return cache.get(sample_key(number), [number]() -> Result<Entry> { return sample_entry(number, 1000); })->outcome;
  };
  for (std::uint64_t number = 0; number < 3; ++number) EXPECT_EQ(get(number), Outcome::built);
  EXPECT_EQ(get(0), Outcome::memory);
  EXPECT_EQ(get(3), Outcome::built);  // pushes out 1
  EXPECT_EQ(get(0), Outcome::memory);
  EXPECT_EQ(get(2), Outcome::memory);
  EXPECT_EQ(get(3), Outcome::memory);
  EXPECT_EQ(get(1), Outcome::built);
}

TEST(KernelCache, AnEntryLargerThanMemoryIsStillReturned) {
  KernelCache cache(std::nullopt, 10, {});
  for (int i = 0; i < 2; ++i) {
    const auto found = cache.get(sample_key(1), build(1));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->outcome, Outcome::built);
    EXPECT_EQ(*found->entry, sample_entry(1));
  }
}

TEST(KernelCache, ThreadsThatAskForOneKeyBuildItOnce) {
  const TemporaryDirectory directory;
  KernelCache cache(DiskStore(directory.path(), {}), plenty, {});
  constexpr int thread_count = 8;
  constexpr std::uint64_t keys = 20;
  std::array<std::atomic<int>, keys> builds{};
  std::atomic<int> built{0};
  std::atomic<int> wrong{0};
  std::barrier start(thread_count);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < thread_count; ++thread) {
    threads.emplace_back([&] {
      for (std::uint64_t number = 0; number < keys; ++number) {
        start.arrive_and_wait();
        const auto found = cache.get(sample_key(number), [&builds, number]() -> Result<Entry> {
          ++builds[number];
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
          return sample_entry(number);
        });
        if (!found || *found->entry != sample_entry(number)) ++wrong;
        if (found && found->outcome == Outcome::built) ++built;
      }
    });
  }
  threads.clear();
  for (const auto& count : builds) EXPECT_EQ(count, 1);
  EXPECT_EQ(built, static_cast<int>(keys));
  EXPECT_EQ(wrong, 0);
}

TEST(KernelCache, DifferentKeysBuildAtTheSameTime) {
  KernelCache cache(std::nullopt, plenty, {});
  std::barrier both_building(2);  // passes only if two builders run at once
  const auto get = [&](std::uint64_t number) {
    const auto found = cache.get(sample_key(number), [&]() -> Result<Entry> {
      both_building.arrive_and_wait();
      return sample_entry(number);
    });
    EXPECT_TRUE(found);
  };
  const std::jthread first(get, 1);
  const std::jthread second(get, 2);
}

/// `thread_count` threads ask for one key; how the builder ends is `fail`'s business. All must get an error.
void expect_failure_for_all(const KernelCache::Builder& fail, ErrorCode code) {
  const TemporaryDirectory directory;
  KernelCache cache(DiskStore(directory.path(), {}), plenty, {});
  constexpr int thread_count = 6;
  std::atomic<int> failures{0};
  std::barrier start(thread_count);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < thread_count; ++thread) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      const auto found = cache.get(sample_key(1), [&fail] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return fail();
      });
      if (!found && found.error().code == code) ++failures;
    });
  }
  threads.clear();
  EXPECT_EQ(failures, thread_count);
  // Stored nowhere: the next one builds.
  EXPECT_TRUE(DiskStore(directory.path(), {}).list().empty());
  const auto found = cache.get(sample_key(1), build(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->outcome, Outcome::built);
}

// Field case F080.
TEST(KernelCache, AFailedBuildIsReturnedToAllAndStoredNowhere) {
  expect_failure_for_all([]() -> Result<Entry> { return refusal(); }, ErrorCode::compile_failed);
}

TEST(KernelCache, AnExceptionInTheBuilderIsAnErrorForAll) {
  expect_failure_for_all([]() -> Result<Entry> { throw std::runtime_error("out of luck"); }, ErrorCode::compile_failed);
  expect_failure_for_all([]() -> Result<Entry> { throw 42; }, ErrorCode::compile_failed);
}

TEST(KernelCache, AnErrorKeepsItsDetail) {
  KernelCache cache(std::nullopt, plenty, {});
  const auto found = cache.get(sample_key(1), []() -> Result<Entry> { return refusal(); });
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message(), refusal().message());
}

TEST(KernelCache, ADamagedEntryIsBuiltAgainWithAWarning) {
  const TemporaryDirectory directory;
  std::vector<std::string> lines;
  const LogSink log = [&lines](LogLevel, std::string_view line) { lines.emplace_back(line); };
  ASSERT_TRUE(KernelCache(DiskStore(directory.path(), log), plenty, log).get(sample_key(1), build(1)));
  const std::string name = sample_key(1).to_text();
  const auto path = directory.path() / name.substr(0, 2) / (name.substr(2) + ".fse");
  std::filesystem::resize_file(path, 100);
  KernelCache cache(DiskStore(directory.path(), log), plenty, log);
  EXPECT_TRUE(lines.empty());
  EXPECT_EQ(cache.get(sample_key(1), build(1))->outcome, Outcome::built);
  EXPECT_EQ(lines.size(), 1U);
  KernelCache later(DiskStore(directory.path(), log), plenty, log);
  EXPECT_EQ(later.get(sample_key(1), must_not_build)->outcome, Outcome::disk);
}

TEST(KernelCache, ADiscardedEntryIsBuiltAgainEverywhere) {
  const TemporaryDirectory directory;
  std::vector<std::string> lines;
  const LogSink log = [&lines](LogLevel, std::string_view line) { lines.emplace_back(line); };
  KernelCache cache(DiskStore(directory.path(), log), plenty, log);
  ASSERT_TRUE(cache.get(sample_key(1), build(1)));
  cache.discard(sample_key(1), "CUDA_ERROR_NO_BINARY_FOR_GPU");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("CUDA_ERROR_NO_BINARY_FOR_GPU"), std::string::npos);
  EXPECT_EQ(cache.get(sample_key(1), build(1))->outcome, Outcome::built);
}

TEST(KernelCache, ADiscardedEntryThatCannotBeMovedAsideIsNotReadAgain) {
  const TemporaryDirectory directory;
  KernelCache cache(DiskStore(directory.path(), {}), plenty, {});
  ASSERT_TRUE(cache.get(sample_key(1), build(1)));
  std::ofstream(directory.path() / "damaged") << "in the way";
  cache.discard(sample_key(1), "the device does not take it");
  EXPECT_FALSE(cache.find(sample_key(1)).has_value());
  EXPECT_EQ(cache.get(sample_key(1), build(1))->outcome, Outcome::built);
  KernelCache later(DiskStore(directory.path(), {}), plenty, {});
  EXPECT_EQ(later.get(sample_key(1), must_not_build)->outcome, Outcome::disk) << "the new one is in its place";
}

TEST(KernelCache, AWriteThatFailsIsAWarning) {
  const TemporaryDirectory directory;
  std::ofstream(directory.path() / "file") << "in the way";
  std::vector<std::string> lines;
  const LogSink log = [&lines](LogLevel, std::string_view line) { lines.emplace_back(line); };
  KernelCache cache(DiskStore(directory.path() / "file", log), plenty, log);
  const auto found = cache.get(sample_key(1), build(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(*found->entry, sample_entry(1));
  EXPECT_EQ(lines.size(), 1U);
}

}  // namespace
}  // namespace flashspan::cache
