#include "runtime/cuda/stream_timer.hpp"

namespace flashspan::cuda {
namespace {

/// Destroyed at the end of the scope.
class TimedEvent {
 public:
  explicit TimedEvent(const DriverApi& driver)
      : driver_(driver), created_(check(driver, "cuEventCreate", driver.event_create(&event_, event_default))) {}
  ~TimedEvent() {
    if (created_) driver_.event_destroy(event_);
  }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;

  [[nodiscard]] Result<void> record(CUstream stream) const {
    if (!created_) return created_;
    return check(driver_, "cuEventRecord", driver_.event_record(event_, stream));
  }
  [[nodiscard]] CUevent get() const { return event_; }

 private:
  const DriverApi& driver_;
  CUevent event_ = nullptr;
  Result<void> created_;
};

}  // namespace

Result<double> stream_milliseconds(const DriverApi& driver, CUstream stream,
                                   const std::function<Result<void>()>& queue) {
  const TimedEvent begin(driver);
  const TimedEvent end(driver);
  if (auto recorded = begin.record(stream); !recorded) return recorded.error();
  if (auto queued = queue(); !queued) return queued.error();
  if (auto recorded = end.record(stream); !recorded) return recorded.error();
  if (auto done = check(driver, "cuEventSynchronize", driver.event_synchronize(end.get())); !done) return done.error();
  float milliseconds = 0;
  const CUresult code = driver.event_elapsed_time(&milliseconds, begin.get(), end.get());
  if (auto read = check(driver, "cuEventElapsedTime", code); !read) return read.error();
  return double{milliseconds};
}

}  // namespace flashspan::cuda
