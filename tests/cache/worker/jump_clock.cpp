// jump_clock.cpp -- preloaded into a process, lets its wall clock jump by up to ten years, to and fro, with every look
// at it. The clocks that only go forward, and the times that the system gives to files, stay right.
#include <dlfcn.h>
#include <sys/time.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace {

std::time_t jump() {
  static std::atomic<std::uint32_t> looks{0};
  constexpr std::uint32_t odd = 2654435761U;  // a multiplication by which spreads consecutive numbers
  constexpr std::time_t years = std::time_t{10} * 365 * 86400;
  return static_cast<std::time_t>(looks++ * odd) % (2 * years) - years;
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED std::time_t time(std::time_t* result) noexcept {
  const std::time_t now = next<std::time_t(std::time_t*)>("time")(nullptr) + jump();
  if (result != nullptr) *result = now;
  return now;
}

EXPORTED int clock_gettime(clockid_t clock, timespec* result) noexcept {
  const int code = next<int(clockid_t, timespec*)>("clock_gettime")(clock, result);
  if (code == 0 && clock == CLOCK_REALTIME) result->tv_sec += jump();
  return code;
}

EXPORTED int gettimeofday(timeval* result, void* zone) noexcept {
  const int code = next<int(timeval*, void*)>("gettimeofday")(result, zone);
  if (code == 0) result->tv_sec += jump();
  return code;
}
