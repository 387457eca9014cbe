// jump_clock.cpp -- preloaded into a process, lets its wall clock jump by up to ten years, to and fro, with every look
// at it. The clocks that only go forward, and the times that the system gives to files, stay right. The true time comes
// from the system itself, not from the functions that are replaced: a sanitizer asks for it before dlsym() works.
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

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

int true_time(clockid_t clock, timespec* result) {
  return static_cast<int>(::syscall(SYS_clock_gettime, clock, result));
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED std::time_t time(std::time_t* result) noexcept {
  timespec now{};
  true_time(CLOCK_REALTIME, &now);
  now.tv_sec += jump();
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}

EXPORTED int clock_gettime(clockid_t clock, timespec* result) noexcept {
  const int code = true_time(clock, result);
  if (code == 0 && clock == CLOCK_REALTIME) result->tv_sec += jump();
  return code;
}

EXPORTED int gettimeofday(timeval* result, void* /*zone*/) noexcept {
  timespec now{};
  const int code = true_time(CLOCK_REALTIME, &now);
  if (code == 0) *result = {now.tv_sec + jump(), now.tv_nsec / 1000};
  return code;
}
