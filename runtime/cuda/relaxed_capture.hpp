// relaxed_capture.hpp -- RelaxedCapture: driver calls that another thread's stream capture would forbid, allowed for a
// scope. The calls made under it touch no stream that is captured, so the capture stays what it is.
#pragma once

#include "runtime/cuda/driver_api.hpp"

namespace flashspan::cuda {

class RelaxedCapture {
 public:
  explicit RelaxedCapture(const DriverApi& driver)
      : driver_(driver), exchanged_(driver.thread_exchange_stream_capture_mode(&mode_) == cuda_success) {}
  ~RelaxedCapture() {
    if (exchanged_) driver_.thread_exchange_stream_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const DriverApi& driver_;
  int mode_ = stream_capture_mode_relaxed;
  bool exchanged_;
};

}  // namespace flashspan::cuda
