#include "cache/shared_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>

#include "cache/whole_file.hpp"

namespace flashspan::cache {
namespace {

/// Held until the end of the scope. Of a process that dies, the system lets it go.
class FileLock {
 public:
  explicit FileLock(const std::filesystem::path& path) {
    constexpr mode_t owner_and_readers = 0644;
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, owner_and_readers);
    if (descriptor_ < 0) {
      error_ = errno;
      return;
    }
    while (::flock(descriptor_, LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      error_ = errno;
      return;
    }
  }
  ~FileLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  [[nodiscard]] int error() const { return error_; }

 private:
  int descriptor_ = -1;
  int error_ = 0;
};

}  // namespace

int change_file(const std::filesystem::path& path, const TextChange& change) {
  if (path.has_parent_path()) {
    if (const int error = create_private_directories(path.parent_path()); error != 0) return error;
  }
  const FileLock lock(path.string() + ".lock");
  if (lock.error() != 0) return lock.error();
  FileContents contents;
  constexpr std::int64_t never = -1;
  const int error = read_file(path, largest_shared_file_bytes, never, contents);
  if (error != 0 && error != ENOENT) return error;
  const std::string old(reinterpret_cast<const char*>(contents.bytes.data()), contents.bytes.size());
  const std::string changed = change(old);
  return publish_file(path, std::as_bytes(std::span(changed)));
}

}  // namespace flashspan::cache
