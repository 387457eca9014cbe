#include "cache/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cache/whole_file.hpp"

namespace flashspan::cache {
namespace {

/// A descriptor, or -1 with errno. No link is followed, and a file that was there keeps its permissions: it may be
/// anybody's.
int opened_or_made(const std::filesystem::path& path) {
  constexpr mode_t owner_alone = 0600;
  constexpr int attempts = 10;  // between the two calls another process may remove the file
  // For writing too: NFS gives no exclusive lock of a file that is only read.
  constexpr int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const int made = ::open(path.c_str(), flags | O_CREAT | O_EXCL, owner_alone);
    if (made >= 0) take_permissions_of_directory(made, path.parent_path());
    if (made >= 0 || errno != EEXIST) return made;
    const int opened = ::open(path.c_str(), flags);
    if (opened >= 0 || errno != ENOENT) return opened;
  }
  return -1;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& path) : descriptor_(opened_or_made(path)) {
  if (descriptor_ < 0) error_ = errno;
}

FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  ::flock(descriptor_, LOCK_UN);  // a child that was forked meanwhile has the descriptor too, and would keep the lock
  ::close(descriptor_);
}

int FileLock::wait_for() { return take(LOCK_EX); }

int FileLock::try_to_take() { return take(LOCK_EX | LOCK_NB); }

int FileLock::take(int operation) {
  if (error_ != 0) return error_;
  while (::flock(descriptor_, operation) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

bool FileLock::is_at(const std::filesystem::path& path) const {
  struct stat opened{};
  struct stat there{};
  return ::fstat(descriptor_, &opened) == 0 && ::stat(path.c_str(), &there) == 0 && opened.st_ino == there.st_ino &&
         opened.st_dev == there.st_dev;
}

}  // namespace flashspan::cache
