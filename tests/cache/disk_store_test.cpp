// Files in a directory: what is published is found, what is damaged is set aside, what cannot be read is left alone.
#include "cache/disk_store.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <fstream>
#include <map>
#include <set>
#include <tuple>

#include "tests/cache/sample_entries.hpp"
#include "tests/cache/temporary_directory.hpp"

namespace flashspan::cache {
namespace {

namespace fs = std::filesystem;

struct Log {
  std::vector<std::string> warnings;
  LogSink sink() {
    return [this](LogLevel, std::string_view line) { warnings.emplace_back(line); };
  }
};

fs::path file_of(const fs::path& directory, const KernelKey& key) {
  return directory / key.to_text().substr(0, 2) / (key.to_text().substr(2) + ".fse");
}

std::string contents_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put_contents(const fs::path& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
}

/// Sets the last-use stamp of an entry to `seconds` before now.
void age(const fs::path& path, std::time_t seconds) {
  const timespec then{std::time(nullptr) - seconds, 0};
  const timespec times[2] = {then, then};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

std::set<std::string> names_below(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& item : fs::recursive_directory_iterator(directory)) {
    if (item.is_regular_file()) names.insert(fs::relative(item.path(), directory));
  }
  return names;
}

class DiskStoreTest : public testing::Test {
 protected:
  void put(std::uint64_t number) { ASSERT_TRUE(store_.write(sample_key(number), sample_entry(number))); }
  [[nodiscard]] fs::path file(std::uint64_t number) const { return file_of(directory_, sample_key(number)); }

  TemporaryDirectory temporary_;
  fs::path directory_ = temporary_.path() / "below" / "cache";
  Log log_;
  DiskStore store_{directory_, log_.sink()};
};

TEST_F(DiskStoreTest, ReadsWhatWasWrittenHereOrByAnotherStore) {
  for (std::uint64_t number = 0; number < 10; ++number) put(number);
  DiskStore other(directory_, log_.sink());
  for (std::uint64_t number = 0; number < 10; ++number) {
    EXPECT_EQ(store_.read(sample_key(number)), sample_entry(number));
    EXPECT_EQ(other.read(sample_key(number)), sample_entry(number));
  }
  EXPECT_EQ(store_.read(sample_key(10)), std::nullopt);
  EXPECT_TRUE(log_.warnings.empty());
}

TEST_F(DiskStoreTest, CreatesNothingBeforeTheFirstWrite) {
  EXPECT_EQ(store_.read(sample_key(1)), std::nullopt);
  EXPECT_TRUE(store_.list().empty());
  EXPECT_TRUE(store_.prune({0, std::nullopt}).empty());
  store_.set_aside(sample_key(1), "absent");
  EXPECT_TRUE(fs::is_empty(temporary_.path()));
  EXPECT_TRUE(log_.warnings.empty());
}

TEST_F(DiskStoreTest, LeavesOnlyTheEntryFiles) {
  put(1);
  put(2);
  put(1);
  const std::set<std::string> expected{fs::relative(file(1), directory_), fs::relative(file(2), directory_)};
  EXPECT_EQ(names_below(directory_), expected);
}

TEST_F(DiskStoreTest, OwnDirectoriesArePrivate) {
  put(1);
  for (const fs::path& path : {directory_.parent_path(), directory_, file(1).parent_path()}) {
    EXPECT_EQ(fs::status(path).permissions(), fs::perms(0700)) << path;
  }
  EXPECT_EQ(fs::status(file(1)).permissions(), fs::perms(0600));
}

TEST_F(DiskStoreTest, EntriesTakeThePermissionsOfAGivenDirectory) {
  fs::create_directories(directory_);
  fs::permissions(directory_, fs::perms(0775));
  put(1);
  EXPECT_EQ(fs::status(file(1).parent_path()).permissions(), fs::perms(0775));
  EXPECT_EQ(fs::status(file(1)).permissions(), fs::perms(0664));
}

TEST_F(DiskStoreTest, DamagedEntriesAreSetAsideAndCanBeReplaced) {
  put(3);
  const std::string whole = contents_of(file(3));
  std::size_t warnings = 0;
  for (std::size_t length = 0; length < whole.size(); length += 211) {
    put_contents(file(3), whole.substr(0, length));
    EXPECT_EQ(store_.read(sample_key(3)), std::nullopt) << length;
    EXPECT_FALSE(fs::exists(file(3))) << length;
    EXPECT_TRUE(fs::exists(directory_ / "damaged" / (sample_key(3).to_text() + ".fse")));
    EXPECT_EQ(log_.warnings.size(), ++warnings);
    put(3);
    EXPECT_EQ(store_.read(sample_key(3)), sample_entry(3));
  }
  for (std::size_t position = 0; position < whole.size(); position += 97) {
    std::string flipped = whole;
    flipped[position] = static_cast<char>(flipped[position] ^ 0x10);
    put_contents(file(3), flipped);
    EXPECT_EQ(store_.read(sample_key(3)), std::nullopt) << position;
    EXPECT_FALSE(fs::exists(file(3))) << position;
    EXPECT_EQ(log_.warnings.size(), ++warnings);
  }
}

// Field case F075.
TEST_F(DiskStoreTest, SwappedFilesAreNotServed) {
  put(1);
  put(2);
  const std::string first = contents_of(file(1));
  put_contents(file(1), contents_of(file(2)));
  put_contents(file(2), first);
  EXPECT_EQ(store_.read(sample_key(1)), std::nullopt);
  EXPECT_EQ(store_.read(sample_key(2)), std::nullopt);
  EXPECT_EQ(log_.warnings.size(), 2U);
}

TEST_F(DiskStoreTest, AnUnreadablePathIsLeftAloneAndWarnedOfOnce) {
  fs::create_directories(file(4));  // a directory in the place of a file: EISDIR
  EXPECT_EQ(store_.read(sample_key(4)), std::nullopt);
  EXPECT_EQ(store_.read(sample_key(4)), std::nullopt);
  EXPECT_EQ(log_.warnings.size(), 1U);
  EXPECT_TRUE(fs::is_directory(file(4)));
  const auto written = store_.write(sample_key(4), sample_entry(4));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::io_error);
  EXPECT_TRUE(names_below(directory_).empty());
  put(5);  // one bad place does not make the store read-only
}

TEST_F(DiskStoreTest, AFifoInTheWayDoesNotBlock) {
  fs::create_directories(file(4).parent_path());
  ASSERT_EQ(::mkfifo(file(4).c_str(), 0600), 0);
  EXPECT_EQ(store_.read(sample_key(4)), std::nullopt);
}

TEST_F(DiskStoreTest, AFileInPlaceOfTheDirectoryIsAnErrorOfTheWrite) {
  DiskStore store(temporary_.path() / "file" / "cache", log_.sink());
  put_contents(temporary_.path() / "file", "not a directory");
  EXPECT_EQ(store.read(sample_key(1)), std::nullopt);
  const auto written = store.write(sample_key(1), sample_entry(1));
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message().find("cache directory"), std::string::npos);
}

TEST_F(DiskStoreTest, SurvivesTheLossOfItsDirectory) {
  put(1);
  fs::remove_all(directory_.parent_path());
  EXPECT_EQ(store_.read(sample_key(1)), std::nullopt);
  put(1);
  EXPECT_EQ(store_.read(sample_key(1)), sample_entry(1));
  EXPECT_TRUE(log_.warnings.empty());
}

TEST_F(DiskStoreTest, ListShowsEveryEntrySortedWithItsDamage) {
  for (std::uint64_t number = 0; number < 6; ++number) put(number);
  put_contents(file(2), contents_of(file(2)).substr(0, 70));
  put_contents(directory_ / "README", "not an entry");
  put_contents(file(2).parent_path() / "notes.fse", "not a key");
  const std::vector<StoredEntry> entries = store_.list();
  std::map<KernelKey, std::uint64_t> expected;
  for (std::uint64_t number = 0; number < 6; ++number) expected[sample_key(number)] = number;
  ASSERT_EQ(entries.size(), expected.size());
  auto next = expected.begin();
  for (const StoredEntry& entry : entries) {
    const auto [key, number] = *next++;
    EXPECT_EQ(entry.key, key);
    EXPECT_EQ(entry.bytes, static_cast<std::int64_t>(fs::file_size(file(number))));
    EXPECT_NEAR(static_cast<double>(entry.modified_unix_seconds), static_cast<double>(std::time(nullptr)), 100);
    EXPECT_EQ(entry.valid, number != 2);
    EXPECT_EQ(entry.damage.empty(), number != 2);
    EXPECT_EQ(entry.metadata, number != 2 ? sample_entry(number).metadata : "");
  }
  EXPECT_TRUE(fs::exists(file(2)));  // listing moves nothing
}

TEST_F(DiskStoreTest, PruneByAgeKeepsWhatWasUsedSince) {
  for (std::uint64_t number = 0; number < 4; ++number) put(number);
  age(file(0), 1000);
  age(file(1), 5000);
  age(file(2), 9000);
  age(file(3), 9000);
  ASSERT_TRUE(store_.read(sample_key(3)).has_value());  // refreshes the stamp
  const auto removed = store_.prune({std::nullopt, std::time(nullptr) - 4000});
  std::set<KernelKey> keys;
  for (const StoredEntry& entry : removed) keys.insert(entry.key);
  EXPECT_EQ(keys, (std::set<KernelKey>{sample_key(1), sample_key(2)}));
  EXPECT_TRUE(fs::exists(file(0)));
  EXPECT_TRUE(fs::exists(file(3)));
  EXPECT_FALSE(fs::exists(file(1)));
}

TEST_F(DiskStoreTest, PruneBySizeRemovesTheLeastRecentlyUsed) {
  for (std::uint64_t number = 0; number < 4; ++number) {
    ASSERT_TRUE(store_.write(sample_key(number), sample_entry(number, 1000)));
    age(file(number), 100 * static_cast<std::time_t>(number + 1));  // 3 is the oldest
  }
  const auto size = static_cast<std::int64_t>(fs::file_size(file(0)));
  EXPECT_TRUE(store_.prune({4 * size, std::nullopt}).empty());
  const auto removed = store_.prune({2 * size + size / 2, std::nullopt});
  ASSERT_EQ(removed.size(), 2U);
  EXPECT_EQ(removed[0].key, sample_key(3));
  EXPECT_EQ(removed[1].key, sample_key(2));
  EXPECT_EQ(store_.list().size(), 2U);
  EXPECT_EQ(store_.prune({0, std::nullopt}).size(), 2U);
  EXPECT_TRUE(store_.list().empty());
}

TEST_F(DiskStoreTest, TwoThousandEntriesUnderALimitNeverTakeMoreThanItAfterAPrune) {
  constexpr std::int64_t limit = 500000;
  for (std::uint64_t number = 0; number < 2000; ++number) {
    ASSERT_TRUE(store_.write(sample_key(number), sample_entry(number, 10000)));
    if (number % 100 != 99) continue;
    std::ignore = store_.prune({limit, std::nullopt});
    std::int64_t bytes = 0;
    for (const StoredEntry& entry : store_.list()) bytes += entry.bytes;
    ASSERT_LE(bytes, limit);
    ASSERT_GT(bytes, limit - 2 * 10000) << "more than need be was removed";
  }
}

TEST_F(DiskStoreTest, PruneSweepsOldTemporaryFilesAndWhatWasSetAside) {
  put(1);
  const fs::path shard = file(1).parent_path();
  put_contents(shard / ".tmp-1-old", "left by a killed writer");
  put_contents(shard / ".tmp-2-new", "being written");
  age(shard / ".tmp-1-old", 2 * 3600);
  put(2);
  store_.set_aside(sample_key(2), "refused by the device");
  EXPECT_FALSE(fs::exists(file(2)));
  EXPECT_TRUE(store_.prune({}).empty());
  const std::set<std::string> expected{fs::relative(file(1), directory_),
                                       fs::relative(shard / ".tmp-2-new", directory_)};
  EXPECT_EQ(names_below(directory_), expected);
}

TEST_F(DiskStoreTest, PruneKeepsWhatFailedForAWeek) {
  const fs::path folder = directory_ / failed_folder;
  fs::create_directories(folder);
  put_contents(folder / "old.cu", "does not compile");
  put_contents(folder / "new.cu", "does not compile");
  age(folder / "old.cu", 8 * 24 * 3600);
  age(folder / "new.cu", 6 * 24 * 3600);
  EXPECT_TRUE(store_.prune({}).empty());
  EXPECT_EQ(names_below(directory_), (std::set<std::string>{"failed/new.cu"}));
}

TEST_F(DiskStoreTest, ARecentStampIsNotWrittenAgain) {
  put(1);
  age(file(1), 600);
  const auto before = fs::last_write_time(file(1));
  ASSERT_TRUE(store_.read(sample_key(1)).has_value());
  EXPECT_EQ(fs::last_write_time(file(1)), before);
  age(file(1), 7200);
  ASSERT_TRUE(store_.read(sample_key(1)).has_value());
  EXPECT_GT(fs::last_write_time(file(1)), before);
}

}  // namespace
}  // namespace flashspan::cache
