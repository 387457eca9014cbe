// A lock is a file of its own, made by whoever comes first: nobody's other file is opened or changed for it.
#include "cache/file_lock.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "tests/cache/temporary_directory.hpp"

namespace flashspan::cache {
namespace {

namespace fs = std::filesystem;

class Lock : public testing::Test {
 protected:
  TemporaryDirectory directory_;
  fs::path path_ = directory_.path() / "lock";
};

TEST_F(Lock, ALinkInItsPlaceIsAnErrorAndItsTargetIsLeftAlone) {
  const fs::path target = directory_.path() / "private";
  std::ofstream(target) << "secret";
  fs::permissions(target, fs::perms{0600});
  fs::permissions(directory_.path(), fs::perms{0775});
  fs::create_symlink(target, path_);
  EXPECT_EQ(FileLock(path_).wait_for(), ELOOP);
  EXPECT_EQ(fs::status(target).permissions(), fs::perms{0600});
}

TEST_F(Lock, OneThatIsMadeIsForThoseWhoShareItsFolder) {
  fs::permissions(directory_.path(), fs::perms{0770});
  EXPECT_EQ(FileLock(path_).wait_for(), 0);
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms{0660});
}

TEST_F(Lock, InAStickyFolderItsOwnerAloneMayWriteIt) {
  fs::permissions(directory_.path(), fs::perms::all | fs::perms::sticky_bit);
  EXPECT_EQ(FileLock(path_).wait_for(), 0);
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms{0644});
}

TEST_F(Lock, OneThatIsThereKeepsItsPermissions) {
  std::ofstream{path_};
  fs::permissions(path_, fs::perms{0600});
  fs::permissions(directory_.path(), fs::perms{0777});
  EXPECT_EQ(FileLock(path_).wait_for(), 0);
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms{0600});
}

TEST_F(Lock, WithoutItsFolderThereIsNone) { EXPECT_EQ(FileLock(path_ / "lock").wait_for(), ENOENT); }

}  // namespace
}  // namespace flashspan::cache
