#include "runtime/cuda/pending_launches.hpp"

#include <algorithm>

#include "runtime/cuda/relaxed_capture.hpp"

namespace flashspan::cuda {

std::unique_ptr<PendingLaunches> PendingLaunches::open(const CudaDevice& device) {
  std::unique_ptr<PendingLaunches> pending(new PendingLaunches(device));
  for (Followed& followed : pending->followed_) {
    if (device.driver->event_create(&followed.event, event_disable_timing) == cuda_success) continue;
    followed.event = nullptr;
    return nullptr;
  }
  return pending;
}

PendingLaunches::~PendingLaunches() {
  const ContextScope scope(device_);
  if (!scope.entered()) return;  // at process exit the driver may be gone, and the events with it
  for (const Followed& followed : followed_) {
    if (followed.event != nullptr) device_.driver->event_destroy(followed.event);
  }
}

void PendingLaunches::record(CUstream stream) {
  const std::scoped_lock lock(mutex_);
  if (!lost_) lost_ = !follow(stream);
}

bool PendingLaunches::none() {
  const ContextScope scope(device_);
  if (!scope.entered()) return false;
  const std::scoped_lock lock(mutex_);
  forget_what_has_ended();
  return !lost_ && std::ranges::none_of(followed_, &Followed::pending);
}

bool PendingLaunches::follow(CUstream stream) {
  const DriverApi& driver = *device_.driver;
  int capture_status = stream_capture_status_none;
  if (driver.stream_is_capturing(stream, &capture_status) != cuda_success) return false;
  if (capture_status != stream_capture_status_none) return false;
  unsigned long long number = 0;
  if (driver.stream_get_id(stream, &number) != cuda_success) return false;
  Followed* const place = place_for(number);
  if (place == nullptr || driver.event_record(place->event, stream) != cuda_success) return false;
  place->stream = number;
  place->pending = true;
  return true;
}

PendingLaunches::Followed* PendingLaunches::place_for(unsigned long long stream) {
  const auto same = std::ranges::find_if(
      followed_, [stream](const Followed& followed) { return followed.pending && followed.stream == stream; });
  if (same != followed_.end()) return &*same;
  forget_what_has_ended();
  const auto free = std::ranges::find(followed_, false, &Followed::pending);
  return free != followed_.end() ? &*free : nullptr;
}

void PendingLaunches::forget_what_has_ended() {
  // Another thread may be capturing, and in the strict modes that forbids to query events.
  const RelaxedCapture relaxed(*device_.driver);
  for (Followed& followed : followed_) {
    if (followed.pending) followed.pending = device_.driver->event_query(followed.event) != cuda_success;
  }
}

}  // namespace flashspan::cuda
