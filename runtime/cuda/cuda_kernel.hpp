// cuda_kernel.hpp -- CudaKernel: the cubins of a spec's programs loaded on one device, their kernels ready to launch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "codegen/kernel/kernel_spec.hpp"
#include "flashspan/core/error.hpp"
#include "runtime/backend/backend.hpp"
#include "runtime/cuda/cuda_device.hpp"
#include "runtime/cuda/pending_launches.hpp"

namespace flashspan::cuda {

enum class EntryPoint {
  plan_program,
  plan_tiles,
  forward,
  backward_delta,
  backward_sink,
  backward_dq,
  backward_dkdv,
  backward_tiles,
  backward_query_gradient,
  backward_score_clear,
  backward_score_sum,
  backward_score_round,
};
inline constexpr auto entry_point_count = static_cast<std::size_t>(EntryPoint::backward_score_round) + 1;

/// Unloads when destroyed; the last owner must outlive the work that it launched, or ask may_unload().
class CudaKernel : public backend::LoadedKernel {
 public:
  /// Loads the entry points of the spec's direction and sets their attributes, so that a launch does neither: both are
  /// forbidden while a stream is captured.
  /// `binary`: backend::Binary::bytes().
  /// Error: device_error; a cubin may be damaged, missing, for another architecture, or newer than the driver.
  static Result<std::shared_ptr<CudaKernel>> load(const CudaDevice& device, std::span<const std::byte> binary,
                                                  const kernel::KernelSpec& spec);
  ~CudaKernel() override;

  /// From now on every launch is followed by an event, which costs it about a microsecond.
  void follow_launches() override;
  /// Always false unless follow_launches() was called.
  [[nodiscard]] bool may_unload() const override;

  /// Queues one kernel. The device's context must be current; blocks > 0. `arguments` point to the values.
  [[nodiscard]] Result<void> launch(EntryPoint entry, std::int64_t blocks, int threads, Stream stream,
                                    std::span<void*> arguments) const;

 private:
  struct Entry {
    CUkernel kernel = nullptr;
    unsigned dynamic_shared_bytes = 0;
  };

  explicit CudaKernel(const CudaDevice& device) : device_(device) {}
  Result<CUlibrary> load_library(std::span<const std::byte> cubin);
  Result<void> load_entry(CUlibrary library, EntryPoint entry, std::int64_t dynamic_shared_bytes);

  CudaDevice device_;
  std::vector<CUlibrary> libraries_;
  std::unique_ptr<PendingLaunches> pending_;  ///< null: launches are not followed
  std::array<Entry, entry_point_count> entries_{};
};

}  // namespace flashspan::cuda
