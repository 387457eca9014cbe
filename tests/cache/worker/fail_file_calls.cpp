// fail_file_calls.cpp -- preloaded into a process, makes every third call of one function on a cache file fail:
// FAIL_CALL is its name (open, rename, fsync, mkostemp, flock), FAIL_ERRNO the number it fails with. A call named
// "rename-reply" is carried out, and then reported as failed: what a client of NFS sees when an answer is lost and the
// server carries the request out once more.
#include <dlfcn.h>
#include <sys/file.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

bool should_fail(const char* name) {
  static std::atomic<int> calls{0};
  const char* const chosen = std::getenv("FAIL_CALL");
  if (chosen == nullptr || std::strcmp(chosen, name) != 0 || ++calls % 3 != 0) return false;
  errno = std::atoi(std::getenv("FAIL_ERRNO"));
  return true;
}

bool is_cache_file(const char* path) {
  const std::string_view text(path);
  return text.ends_with(".fse") || text.find(".tmp-") != std::string_view::npos;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);  // garbage unless flags ask for it, and then unused
  va_end(rest);
  if (is_cache_file(path) && should_fail("open")) return -1;
  return next<int(const char*, int, ...)>("open")(path, flags, mode);
}

EXPORTED int rename(const char* from, const char* to) noexcept {
  if (is_cache_file(from) && should_fail("rename")) return -1;
  const int code = next<int(const char*, const char*)>("rename")(from, to);
  return is_cache_file(from) && should_fail("rename-reply") ? -1 : code;
}

EXPORTED int fsync(int descriptor) {
  if (should_fail("fsync")) return -1;
  return next<int(int)>("fsync")(descriptor);
}

EXPORTED int flock(int descriptor, int operation) noexcept {
  if ((operation & LOCK_UN) == 0 && should_fail("flock")) return -1;
  return next<int(int, int)>("flock")(descriptor, operation);
}

EXPORTED int mkostemp(char* name, int flags) {
  if (should_fail("mkostemp")) return -1;
  return next<int(char*, int)>("mkostemp")(name, flags);
}
