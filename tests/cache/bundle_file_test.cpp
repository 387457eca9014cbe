// Many entries in one file: what goes in comes out, whatever is wrong with the file is found, and readers are left
// alone.
#include "cache/bundle_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <random>

#include "tests/cache/sample_entries.hpp"
#include "tests/cache/temporary_directory.hpp"

namespace flashspan::cache {
namespace {

class Bundle : public testing::Test {
 protected:
  static std::vector<BundledEntry> samples(std::uint64_t first, std::uint64_t end) {
    std::vector<BundledEntry> entries;
    for (std::uint64_t number = first; number < end; ++number) {
      entries.push_back({sample_key(number), sample_key(1000 + number), sample_entry(number)});
    }
    return entries;
  }
  [[nodiscard]] std::string contents() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void put(const std::string& contents) const { std::ofstream(path_, std::ios::binary | std::ios::trunc) << contents; }
  /// How many entries of the file are whole; -1 if it cannot be opened.
  [[nodiscard]] int whole_entries() const {
    const auto bundle = BundleFile::open(path_);
    if (!bundle) return -1;
    int whole = 0;
    for (const auto& item : bundle->items()) whole += bundle->read(item, nullptr) ? 1 : 0;
    return whole;
  }

  TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "kernels.fsb";
};

TEST_F(Bundle, EveryEntryComesBackByItsKeyAndByItsAlias) {
  ASSERT_TRUE(write_bundle(path_, samples(0, 40)));
  const auto bundle = BundleFile::open(path_);
  ASSERT_TRUE(bundle) << bundle.error().message();
  EXPECT_EQ(bundle->items().size(), 40U);
  for (std::uint64_t number = 0; number < 40; ++number) {
    const auto* item = bundle->find(sample_key(number));
    ASSERT_NE(item, nullptr);
    EXPECT_EQ(bundle->find_alias(sample_key(1000 + number)), std::vector{item});
    EXPECT_EQ(bundle->read(*item, nullptr), sample_entry(number));
  }
  EXPECT_EQ(bundle->find(sample_key(40)), nullptr);
  EXPECT_TRUE(bundle->find_alias(sample_key(0)).empty());
}

TEST_F(Bundle, IsForThoseWhoMayReadTheCallersOtherFiles) {
  const mode_t before = ::umask(077);
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::all | std::filesystem::perms::sticky_bit);
  ASSERT_TRUE(write_bundle(path_, samples(0, 2)));
  ::umask(before);
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms{0600});
  std::filesystem::permissions(path_, std::filesystem::perms{0640});
  ASSERT_TRUE(write_bundle(path_, samples(0, 3)));
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms{0640}) << "of the one it replaced";
}

TEST_F(Bundle, EqualEntriesGiveEqualFilesWhateverTheirOrder) {
  ASSERT_TRUE(write_bundle(path_, samples(0, 10)));
  const std::string first = contents();
  auto entries = samples(5, 10);
  for (BundledEntry& entry : samples(0, 8)) entries.push_back(std::move(entry));
  ASSERT_TRUE(write_bundle(path_, std::move(entries)));
  EXPECT_TRUE(contents() == first) << "sorted, and each key once";
}

TEST_F(Bundle, AnEmptyOneIsABundle) {
  ASSERT_TRUE(write_bundle(path_, {}));
  const auto bundle = BundleFile::open(path_);
  ASSERT_TRUE(bundle);
  EXPECT_TRUE(bundle->items().empty());
}

TEST_F(Bundle, AFlippedBitIsFoundWhereverItIs) {
  ASSERT_TRUE(write_bundle(path_, samples(1, 4)));
  const std::string sound = contents();
  std::mt19937 random(7);
  for (int trial = 0; trial < 300; ++trial) {
    std::string damaged = sound;
    // The first part of the file is dense with header and index.
    const std::size_t span = trial % 2 == 0 ? std::min<std::size_t>(sound.size(), 256) : sound.size();
    char& byte = damaged[random() % span];
    byte = static_cast<char>(static_cast<unsigned char>(byte) ^ 1U << random() % 8);
    put(damaged);
    EXPECT_LT(whole_entries(), 3) << "trial " << trial;
  }
}

TEST_F(Bundle, ATruncatedFileServesNothingPastItsEnd) {
  ASSERT_TRUE(write_bundle(path_, samples(1, 4)));
  const std::string sound = contents();
  for (std::size_t size = 0; size < sound.size(); size += 1 + sound.size() / 100) {
    put(sound.substr(0, size));
    EXPECT_EQ(whole_entries(), -1) << size;
  }
  put("not a bundle at all, though it is longer than its header would be");
  EXPECT_EQ(whole_entries(), -1);
}

TEST_F(Bundle, WhoHasItOpenGoesOnReadingWhileAnotherIsWrittenInItsPlace) {
  ASSERT_TRUE(write_bundle(path_, samples(0, 5)));
  const auto old = BundleFile::open(path_);
  ASSERT_TRUE(old);
  ASSERT_TRUE(write_bundle(path_, samples(5, 9)));
  for (const auto& item : old->items()) EXPECT_TRUE(old->read(item, nullptr).has_value());
  EXPECT_EQ(BundleFile::open(path_)->items().size(), 4U);
}

TEST_F(Bundle, AFileThatCannotBeWrittenOrReadIsNamed) {
  const auto unwritable = write_bundle(directory_.path() / "no" / "such" / "folder.fsb", samples(0, 1));
  ASSERT_FALSE(unwritable);
  EXPECT_EQ(unwritable.error().code, ErrorCode::io_error);
  const auto missing = BundleFile::open(path_);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message().find(path_.string()), std::string::npos);
  EXPECT_FALSE(BundleFile::open(directory_.path())) << "a folder";
}

}  // namespace
}  // namespace flashspan::cache
