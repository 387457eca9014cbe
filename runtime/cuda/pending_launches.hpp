// pending_launches.hpp -- PendingLaunches: whether what was launched of a kernel has ended, asked without waiting. The
// driver does not promise that cuLibraryUnload waits for queued launches, so we do not ask it to.
#pragma once

#include <array>
#include <memory>
#include <mutex>

#include "runtime/cuda/cuda_device.hpp"

namespace flashspan::cuda {

/// Thread-safe.
class PendingLaunches {
 public:
  /// All that is ever allocated. The device's context must be current. Null if the driver gives no events.
  static std::unique_ptr<PendingLaunches> open(const CudaDevice& device);
  ~PendingLaunches();
  PendingLaunches(const PendingLaunches&) = delete;
  PendingLaunches& operator=(const PendingLaunches&) = delete;

  /// A kernel was queued on `stream` just now, in the device's context.
  void record(CUstream stream);
  /// False as well when there is no telling: after a launch that a graph captured, since the graph can be replayed at
  /// any time, and after launches on more streams at once than are followed.
  [[nodiscard]] bool none();

 private:
  /// The newest launch on one stream; it ends after all earlier ones there. Streams are told apart by the driver's
  /// number: a handle may be that of a new stream when the old one is gone and its work is not.
  struct Followed {
    CUevent event = nullptr;
    unsigned long long stream = 0;
    bool pending = false;
  };
  static constexpr int max_streams = 4;

  explicit PendingLaunches(const CudaDevice& device) : device_(device) {}
  [[nodiscard]] bool follow(CUstream stream);
  [[nodiscard]] Followed* place_for(unsigned long long stream);
  void forget_what_has_ended();

  CudaDevice device_;
  std::mutex mutex_;  // guards what follows
  std::array<Followed, max_streams> followed_{};
  bool lost_ = false;  ///< a launch is not followed
};

}  // namespace flashspan::cuda
