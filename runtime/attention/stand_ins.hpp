// stand_ins.hpp -- StandIns: the general kernels (kernel::interpreted_of) that serve calls whose own kernel is still
// compiling in the background.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_set>

#include "codegen/kernel/kernel_spec.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/log.hpp"
#include "runtime/attention/compile_queue.hpp"
#include "runtime/attention/kernel_provider.hpp"

namespace flashspan::attention {

/// Thread-safe. The queue must outlive this.
class StandIns {
 public:
  StandIns(std::shared_ptr<KernelProvider> kernels, CompileQueue& queue)
      : kernels_(std::move(kernels)), queue_(queue) {}

  /// Makes the stand-in of every kernel that is loaded now. Error: as KernelProvider::get().
  [[nodiscard]] Result<void> make();
  /// The stand-in of `spec`, which is queued to be compiled, once. A compile that fails is logged and not tried again.
  /// Error: not_prepared, if there is none: for a spec with a score, and for a direction, dtype or head dims that
  /// make() saw no kernel of, unless the stand-in is in the cache.
  [[nodiscard]] Result<KernelProvider::Provided> serve(const kernel::KernelSpec& spec, const UserText& text);
  /// Whether serve() was called for it: its kernel comes from the queue.
  [[nodiscard]] bool is_queued(const kernel::KernelSpec& spec);
  /// The stand-in if it is on the device, else null.
  [[nodiscard]] std::shared_ptr<const ReadyKernel> find(const kernel::KernelSpec& spec) const;

 private:
  /// True for the first call with this spec.
  [[nodiscard]] bool note(const kernel::KernelSpec& spec);

  std::shared_ptr<KernelProvider> kernels_;
  CompileQueue& queue_;
  std::mutex mutex_;
  std::unordered_set<kernel::KernelSpec, kernel::KernelSpecHash> queued_;
};

}  // namespace flashspan::attention
