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
  /// The stand-in of `spec`, which is queued to be compiled. A compile that fails is logged and not tried again.
  /// Error: not_prepared, if there is none: for a spec with a score, and for a direction, dtype or head dims that
  /// make() saw no kernel of, unless the stand-in is in the cache.
  [[nodiscard]] Result<KernelProvider::Provided> serve(const kernel::KernelSpec& spec, const UserText& text);
  /// Whether its kernel is still to come from the queue, or could not be compiled there. One that was compiled, and
  /// unloaded since, is in the cache like any other.
  [[nodiscard]] bool is_queued(const kernel::KernelSpec& spec) { return queued_->contains(spec); }
  /// The stand-in if it is on the device, else null.
  [[nodiscard]] std::shared_ptr<const ReadyKernel> find(const kernel::KernelSpec& spec) const;

 private:
  /// Shared with the queue's tasks, which may outlive this. Thread-safe.
  class Queued {
   public:
    [[nodiscard]] bool contains(const kernel::KernelSpec& spec);
    /// Whether it was not there yet.
    [[nodiscard]] bool add(const kernel::KernelSpec& spec);
    void remove(const kernel::KernelSpec& spec);

   private:
    std::mutex mutex_;
    std::unordered_set<kernel::KernelSpec, kernel::KernelSpecHash> specs_;
  };

  std::shared_ptr<KernelProvider> kernels_;
  CompileQueue& queue_;
  std::shared_ptr<Queued> queued_ = std::make_shared<Queued>();
};

}  // namespace flashspan::attention
