// files.cpp -- whole-file reads and atomic writes by way of a private file and rename(2).
#include "tools/flashspan/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace flashspan::tool {
namespace {

Error io_error(const std::string& argument, const std::string& path, int reason, const std::string& takes) {
  return {ErrorCode::io_error, argument, path + " (" + std::strerror(reason) + ")", takes, ""};
}

/// Closes on leaving scope.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  [[nodiscard]] int get() const { return value_; }

 private:
  int value_;
};

constexpr std::size_t largest_transfer = std::size_t{1} << 30;

/// 0, or the system's reason for stopping early.
int write_all(int file, const void* bytes, std::size_t count) {
  const auto* next = static_cast<const std::byte*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(file, next, std::min(count, largest_transfer));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    next += written;
    count -= static_cast<std::size_t>(written);
  }
  return 0;
}

}  // namespace

Result<std::vector<std::byte>> read_file(const std::string& path, const std::string& argument) {
  const std::string takes = "a readable file";
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status{};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) return io_error(argument, path, errno, takes);
  if (S_ISDIR(status.st_mode)) return io_error(argument, path, EISDIR, takes);
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + filled, std::min(bytes.size() - filled, largest_transfer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error(argument, path, errno, takes);
    if (count == 0) break;  // the file shrank; what the reader of its format makes of that is a content error
    filled += static_cast<std::size_t>(count);
  }
  bytes.resize(filled);
  return bytes;
}

Result<void> write_file_atomically(const std::string& path, const std::string& argument,
                                   const std::function<void(const ByteSink&)>& write) {
  const std::string takes = "a path in a writable folder";
  const std::string temporary = path + ".part." + std::to_string(::getpid());
  int reason = 0;
  {
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file.get() < 0) return io_error(argument, path, errno, takes);
    write([&](const void* bytes, std::size_t count) {
      if (reason == 0) reason = write_all(file.get(), bytes, count);
    });
    if (reason == 0 && ::fsync(file.get()) != 0) reason = errno;
  }
  if (reason == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) reason = errno;
  if (reason == 0) return {};
  ::unlink(temporary.c_str());
  return io_error(argument, path, reason, takes);
}

}  // namespace flashspan::tool
