// Read-only layers below a cache: asked in order, never written, and a bad one costs no more than its entries.
#include "cache/layers.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <fstream>

#include "cache/bundle_file.hpp"
#include "cache/kernel_cache.hpp"
#include "tests/cache/sample_entries.hpp"
#include "tests/cache/temporary_directory.hpp"

namespace flashspan::cache {
namespace {

namespace fs = std::filesystem;

class Layers : public testing::Test {
 protected:
  /// A folder as another cache left it.
  fs::path folder_of(const char* name, std::uint64_t number, const Entry& entry) {
    const fs::path folder = directory_.path() / name;
    EXPECT_TRUE(DiskStore(folder, {}).write(sample_key(number), entry));
    return folder;
  }
  fs::path bundle_of(const char* name, std::uint64_t number, const Entry& entry) {
    const fs::path path = directory_.path() / name;
    EXPECT_TRUE(write_bundle(path, {{sample_key(number), sample_key(1000 + number), entry}}));
    return path;
  }
  KernelCache cache_over(const std::vector<fs::path>& layers) {
    return KernelCache(DiskStore(directory_.path() / "own", log_), 1 << 24, log_, open_layers(layers, log_));
  }

  static Result<Entry> must_not_build() {
    ADD_FAILURE() << "built, though a layer has it";
    return Error{};
  }

  TemporaryDirectory directory_;
  std::vector<std::string> warnings_;
  LogSink log_ = [this](LogLevel, std::string_view line) { warnings_.emplace_back(line); };
};

TEST_F(Layers, AFolderAndABundleServeWhatTheCacheDoesNotHave) {
  KernelCache cache = cache_over({folder_of("folder", 1, sample_entry(1)), bundle_of("b.fsb", 2, sample_entry(2))});
  for (const std::uint64_t number : {1, 2}) {
    const auto found = cache.get(sample_key(number), must_not_build);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->outcome, Outcome::layer);
    EXPECT_EQ(*found->entry, sample_entry(number));
    EXPECT_EQ(cache.get(sample_key(number), must_not_build)->outcome, Outcome::memory);
  }
  EXPECT_FALSE(cache.find(sample_key(3)).has_value());
  EXPECT_FALSE(fs::exists(directory_.path() / "own")) << "nothing is copied";
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(Layers, TheFirstThatHasAnEntryServesItAndTheCachesOwnComesFirst) {
  const auto first = folder_of("first", 1, sample_entry(10)), second = folder_of("second", 1, sample_entry(20));
  EXPECT_EQ(*cache_over({first, second}).find(sample_key(1))->entry, sample_entry(10));
  EXPECT_EQ(*cache_over({second, first}).find(sample_key(1))->entry, sample_entry(20));
  folder_of("own", 1, sample_entry(30));
  EXPECT_EQ(*cache_over({first, second}).find(sample_key(1))->entry, sample_entry(30));
}

TEST_F(Layers, AnAliasIsThatOfABundle) {
  KernelCache cache = cache_over({folder_of("folder", 1, sample_entry(1)), bundle_of("b.fsb", 2, sample_entry(2))});
  const auto found = cache.find_alias(sample_key(1002));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->first, sample_key(2));
  EXPECT_EQ(*found->second.entry, sample_entry(2));
  EXPECT_FALSE(cache.find_alias(sample_key(1001)).has_value());
}

TEST_F(Layers, ADamagedEntryIsAMissAndStaysAsItIs) {
  const fs::path folder = folder_of("folder", 1, sample_entry(1));
  const fs::path file = entry_path(folder, sample_key(1));
  fs::resize_file(file, 100);
  const timespec long_ago{std::time(nullptr) - 100000, 0};
  const timespec times[2] = {long_ago, long_ago};
  ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  KernelCache cache = cache_over({folder});
  EXPECT_EQ(cache.get(sample_key(1), []() -> Result<Entry> { return sample_entry(1); })->outcome, Outcome::built);
  EXPECT_EQ(warnings_.size(), 1U);
  struct stat status{};
  ASSERT_EQ(::stat(file.c_str(), &status), 0) << "it was moved";
  EXPECT_EQ(status.st_mtime, long_ago.tv_sec) << "it was stamped";
}

TEST_F(Layers, WhatTheDeviceRefusedIsNotTakenFromALayerAgain) {
  const fs::path bundle = bundle_of("b.fsb", 1, sample_entry(1));
  KernelCache cache = cache_over({bundle});
  ASSERT_TRUE(cache.get(sample_key(1), must_not_build));
  cache.discard(sample_key(1), "the device does not take it");
  EXPECT_FALSE(cache.find_alias(sample_key(1001)).has_value());
  EXPECT_EQ(cache.get(sample_key(1), []() -> Result<Entry> { return sample_entry(5); })->outcome, Outcome::built);
  EXPECT_EQ(*cache.get(sample_key(1), must_not_build)->entry, sample_entry(5));
}

TEST_F(Layers, EveryEntryOfAnAliasIsTriedUntilOneIsTaken) {
  const fs::path bundle = directory_.path() / "both.fsb";
  const KernelKey alias = sample_key(1000);
  ASSERT_TRUE(write_bundle(bundle, {{sample_key(1), alias, sample_entry(1)}, {sample_key(2), alias, sample_entry(2)}}));
  KernelCache cache = cache_over({bundle});
  const auto first = cache.find_alias(alias);
  ASSERT_TRUE(first.has_value());
  cache.discard(first->first, "the device does not take it");
  const auto second = cache.find_alias(alias);
  ASSERT_TRUE(second.has_value());
  EXPECT_NE(second->first, first->first);
  cache.discard(second->first, "the device does not take it");
  EXPECT_FALSE(cache.find_alias(alias).has_value());
}

TEST_F(Layers, OneThatCannotBeOpenedIsAWarningAndLeftOut) {
  const fs::path broken = directory_.path() / "broken.fsb";
  std::ofstream(broken) << "no bundle";
  KernelCache cache = cache_over({directory_.path() / "missing", broken, bundle_of("b.fsb", 1, sample_entry(1))});
  EXPECT_EQ(warnings_.size(), 2U);
  EXPECT_TRUE(cache.find(sample_key(1)).has_value());
}

}  // namespace
}  // namespace flashspan::cache
