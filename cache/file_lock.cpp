#include "cache/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cache/whole_file.hpp"

namespace flashspan::cache {

FileLock::FileLock(const std::filesystem::path& path) {
  constexpr mode_t owner_alone = 0600;
  // For writing too: NFS gives no exclusive lock of a file that is only read.
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, owner_alone);
  if (descriptor_ < 0) {
    error_ = errno;
    return;
  }
  take_permissions_of_directory(descriptor_, path.parent_path());
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
