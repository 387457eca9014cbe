// whole_file.cpp -- the POSIX calls, with interrupted ones repeated.
#include "cache/whole_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <system_error>

namespace flashspan::cache {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { close(); }
  [[nodiscard]] bool open() const { return number_ >= 0; }
  [[nodiscard]] int number() const { return number_; }
  /// 0 or errno: a network file system may report a failed write only here.
  int close() {
    if (number_ < 0) return 0;
    const int result = ::close(number_);
    number_ = -1;
    return result == 0 || errno == EINTR ? 0 : errno;
  }

 private:
  int number_;
};

int read_to_end(int descriptor, std::int64_t limit_bytes, std::vector<std::byte>& bytes) {
  constexpr std::size_t step = std::size_t{1} << 16;
  std::size_t used = 0;
  while (true) {
    if (used == bytes.size()) bytes.resize(used + step);  // at the end, one more read asks for more
    const ssize_t count = ::read(descriptor, bytes.data() + used, bytes.size() - used);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) break;
    used += static_cast<std::size_t>(count);
    if (used > static_cast<std::size_t>(limit_bytes)) return EFBIG;
  }
  bytes.resize(used);
  return 0;
}

int write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return ENOSPC;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return 0;
}

int sync(int descriptor) {
  while (::fsync(descriptor) != 0) {
    if (errno == EINTR) continue;
    // The file system cannot sync: nothing to wait for.
    return errno == EINVAL || errno == ENOTSUP ? 0 : errno;
  }
  return 0;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

/// What this process's umask leaves. umask() itself would have to change it, for all threads.
mode_t permissions_of_new_files() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    mode_t masked = 0;
    if (word == "Umask:" && status >> std::oct >> masked) return 0666 & ~masked;
  }
  return 0600;
}

/// Gives the open file that is to stand at `path` the permissions of the one that it replaces, or of a new one.
void take_permissions_of_caller(int descriptor, const std::filesystem::path& path) {
  struct stat replaced{};
  const bool replaces = ::stat(path.c_str(), &replaced) == 0;
  (void)::fchmod(descriptor, replaces ? replaced.st_mode & 0666 : permissions_of_new_files());
}

/// Creates .tmp-<pid>-<random> beside `path` with the bytes, on stable storage. After a failure no file is left.
int create_temporary(const std::filesystem::path& path, std::span<const std::byte> bytes, Permissions permissions,
                     std::filesystem::path& temporary) {
  const std::filesystem::path directory = folder_of(path);
  std::string name = (directory / (".tmp-" + std::to_string(::getpid()) + "-XXXXXX")).string();
  FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (!file.open()) return errno;
  if (permissions == Permissions::of_directory) {
    take_permissions_of_directory(file.number(), directory);
  } else {
    take_permissions_of_caller(file.number(), path);
  }
  int error = write_all(file.number(), bytes);
  if (error == 0) error = sync(file.number());
  const int close_error = file.close();
  if (error == 0) error = close_error;
  if (error != 0) {
    ::unlink(name.c_str());
    return error;
  }
  temporary = name;
  return 0;
}

/// Makes renames inside the directory durable, where the file system can.
void sync_directory(const std::filesystem::path& directory) {
  const FileDescriptor handle(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (handle.open()) (void)sync(handle.number());
}

}  // namespace

int read_file(const std::filesystem::path& path, std::int64_t limit_bytes, std::int64_t stamp_after_seconds,
              FileContents& contents) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO in the way must not block
  if (!file.open()) return errno;
  if (::fstat(file.number(), &contents.status) != 0) return errno;
  if (!S_ISREG(contents.status.st_mode)) return EISDIR;
  if (contents.status.st_size > limit_bytes) return EFBIG;
  contents.bytes.resize(static_cast<std::size_t>(contents.status.st_size));
  if (const int error = read_to_end(file.number(), limit_bytes, contents.bytes); error != 0) return error;
  if (stamp_after_seconds >= 0 && std::time(nullptr) - contents.status.st_mtime > stamp_after_seconds) {
    (void)::futimens(file.number(), nullptr);  // accounting never fails a read
  }
  return 0;
}

int publish_file(const std::filesystem::path& path, std::span<const std::byte> bytes, Permissions permissions) {
  std::filesystem::path temporary;
  if (const int error = create_temporary(path, bytes, permissions, temporary); error != 0) return error;
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return error;
  }
  sync_directory(folder_of(path));
  return 0;
}

int create_private_directories(const std::filesystem::path& directory) {
  if (::mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST) return 0;
  const std::filesystem::path parent = directory.parent_path();
  if (errno != ENOENT || parent.empty() || parent == directory) return errno;
  if (const int error = create_private_directories(parent); error != 0) return error;
  return ::mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
}

int create_directory_like(const std::filesystem::path& directory, const std::filesystem::path& parent) {
  if (::mkdir(directory.c_str(), 0700) != 0) return errno == EEXIST ? 0 : errno;
  struct stat status{};
  if (::stat(parent.c_str(), &status) == 0) (void)::chmod(directory.c_str(), status.st_mode & 03777);
  return 0;
}

void take_permissions_of_directory(int descriptor, const std::filesystem::path& directory) {
  struct stat status{};
  if (::stat(directory.c_str(), &status) != 0) return;
  const mode_t kept_from_others = (status.st_mode & S_ISVTX) != 0 ? 0022 : 0;
  (void)::fchmod(descriptor, status.st_mode & 0666 & ~kept_from_others);
}

std::string error_text(int error) { return std::error_code(error, std::generic_category()).message(); }

}  // namespace flashspan::cache
