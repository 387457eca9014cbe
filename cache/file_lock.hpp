// file_lock.hpp -- FileLock: one process of a machine at a time, by flock() on a file that is there for nothing else.
#pragma once

#include <filesystem>

namespace flashspan::cache {

/// Opened by the constructor, taken by one of two functions, and let go at the end of the scope; of a process that
/// dies, the system lets it go.
class FileLock {
 public:
  /// Makes the file if it is not there, with the permissions of its folder. The folder must be there. A link in the
  /// file's place is an error (ELOOP).
  explicit FileLock(const std::filesystem::path& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  /// Each returns 0, or the errno value of what failed: of the opening, if that did.
  [[nodiscard]] int wait_for();
  [[nodiscard]] int try_to_take();  ///< EWOULDBLOCK: another process has it

  /// Whether the file is still the one at that path. One that was removed since it was opened locks nobody out.
  [[nodiscard]] bool is_at(const std::filesystem::path& path) const;

 private:
  [[nodiscard]] int take(int operation);

  int descriptor_ = -1;
  int error_ = 0;
};

}  // namespace flashspan::cache
