// launch_recorder.hpp -- LaunchRecorder: a driver without a device, on which the CUDA back end goes through a call as
// it would on a GPU, and what it queues is kept instead of run. What is left can be written down as a program of its
// own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "flashspan/core/types.hpp"
#include "runtime/cuda/cuda_device.hpp"
#include "runtime/cuda/driver_api.hpp"

namespace flashspan::cuda {

struct RecordedKernel {
  std::string name;
  std::size_t module = 0;  ///< place among LaunchRecorder::modules()
  friend bool operator==(const RecordedKernel&, const RecordedKernel&) = default;
};

struct RecordedLaunch {
  RecordedKernel kernel;
  std::int64_t blocks = 0;
  int threads = 0;
  int dynamic_shared_bytes = 0;
  std::vector<std::vector<std::byte>> parameters;  ///< those that the kernel takes
};

struct RecordedMemset {
  std::uintptr_t address = 0;
  int value = 0;
  std::int64_t bytes = 0;
};

/// A call of cuTensorMapEncodeTiled. In the parameters of launches its map is 16 words of map_mark() of its place.
struct RecordedTensorMap {
  int data_type = 0;
  std::uintptr_t address = 0;
  std::vector<std::uint64_t> extents, strides;  ///< strides in bytes, of all axes but the first
  std::vector<unsigned> box, element_strides;
  int interleave = 0, swizzle = 0, l2_promotion = 0, fill = 0;
};
[[nodiscard]] constexpr std::uint64_t map_mark(std::size_t place) { return 0x6d61705f6d61726bULL + place; }

/// Where values stand in the parameters of the kernels: the scale in the first; a program's scalar of a place among its
/// declarations in the program's, the second of a mask and the third of a score.
[[nodiscard]] std::size_t offset_of_scale();
[[nodiscard]] std::size_t offset_of_integer(std::size_t place);
[[nodiscard]] std::size_t offset_of_real(std::size_t place);

struct Recording {
  std::vector<std::variant<RecordedLaunch, RecordedMemset>> steps;
  std::vector<RecordedTensorMap> maps;
};

/// One at a time on a thread, for calls on that thread.
class LaunchRecorder {
 public:
  /// A device of the architecture with so many processors that no grid is cut to their number.
  explicit LaunchRecorder(Arch arch);
  ~LaunchRecorder();
  LaunchRecorder(const LaunchRecorder&) = delete;
  LaunchRecorder& operator=(const LaunchRecorder&) = delete;

  static constexpr int processors = 1 << 30;
  [[nodiscard]] const DriverApi& api() const { return api_; }
  /// What was queued since it was last taken.
  [[nodiscard]] Recording take();
  /// Cubins, in the order in which they were loaded.
  [[nodiscard]] const std::vector<std::vector<std::byte>>& modules() const { return modules_; }

 private:
  struct Functions;
  DriverApi api_;
  Arch arch_;
  Recording recording_;
  std::vector<std::vector<std::byte>> modules_;
  std::vector<RecordedKernel> kernels_;
};

}  // namespace flashspan::cuda
