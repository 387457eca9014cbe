// attention_op.hpp -- AttentionOp: the one path of every call, forward or backward: validate, choose, provide, plan,
// launch.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/core/miss_policy.hpp"
#include "runtime/attention/attention_call.hpp"
#include "runtime/attention/compile_queue.hpp"
#include "runtime/attention/kernel_provider.hpp"
#include "runtime/attention/stand_ins.hpp"
#include "runtime/attention/tuning_table.hpp"
#include "runtime/backend/backend.hpp"

namespace flashspan::attention {

/// The texts of the call's programs.
[[nodiscard]] UserText user_text(const AttentionCall& call);

/// A checked call: its kernel's identity and the arguments of its launch.
struct CheckedCall {
  kernel::KernelSpec spec;
  backend::LaunchArgs args;
};

class AttentionOp {
 public:
  /// `may_compile`: as CompileQueue; by default one compile at a time goes on in the background.
  AttentionOp(
      std::shared_ptr<backend::Backend> backend, std::shared_ptr<KernelProvider> kernels,
      std::function<bool(int running)> may_compile = [](int running) { return running == 0; })
      : backend_(std::move(backend)), kernels_(std::move(kernels)), queue_(std::move(may_compile)) {}

  [[nodiscard]] const backend::DeviceFacts& facts() const { return backend_->facts(); }
  [[nodiscard]] Result<std::int64_t> workspace_bytes(const AttentionCall& call) const;
  /// The kernel that the call takes, on the device; the workspace is not looked at.
  [[nodiscard]] Result<KernelProvider::Provided> prepare(const AttentionCall& call);
  /// What prepare() asks the provider for. Error: as validate().
  [[nodiscard]] Result<kernel::KernelSpec> spec_of(const AttentionCall& call) const;
  /// The same before any tuned tile: with the call's own tile, or the built-in one.
  [[nodiscard]] Result<kernel::KernelSpec> untuned_spec_of(const AttentionCall& call) const;
  [[nodiscard]] const std::shared_ptr<backend::Backend>& backend() const { return backend_; }
  [[nodiscard]] const std::shared_ptr<KernelProvider>& kernels() const { return kernels_; }
  /// For compiles beside calls.
  [[nodiscard]] CompileQueue& queue() { return queue_; }
  /// What run() does from now on about a kernel that it would have to compile. prepare() always compiles.
  /// Error: as StandIns::make(), for MissPolicy::interpret; the policy is then as before.
  [[nodiscard]] Result<void> freeze(MissPolicy on_miss);
  /// From now on calls without a tile of their own take theirs from this table, where it has one.
  void use_tuned(std::unique_ptr<const TunedTiles> tiles);
  /// Error, before anything is queued: as validate(), KernelProvider::get(), check_plan() and the back end.
  [[nodiscard]] Result<void> run(const AttentionCall& call);

 private:
  [[nodiscard]] Result<CheckedCall> check(const AttentionCall& call) const;
  /// The kernel of a call that is about to be queued. Error: as KernelProvider::get(), and if it is not on the device,
  /// workspace_too_small, and bad_argument if the call's stream is being captured.
  [[nodiscard]] Result<KernelProvider::Provided> provide(const AttentionCall& call, const CheckedCall& checked);
  [[nodiscard]] Result<KernelProvider::Provided> provide_stand_in(const AttentionCall& call,
                                                                  const CheckedCall& checked);
  /// The kernel that a call with this plan takes: a stand-in that has planned goes on with its plan.
  [[nodiscard]] std::shared_ptr<const ReadyKernel> kernel_of_plan(const TilePlan& plan, const kernel::KernelSpec& spec,
                                                                  const std::shared_ptr<const ReadyKernel>& own) const;
  /// Queues the call, and counts it.
  [[nodiscard]] Result<void> launch(const AttentionCall& call, const CheckedCall& checked, const ReadyKernel& ready);
  /// Enough for the spec's own kernel and for those that may serve in its place.
  [[nodiscard]] std::int64_t largest_workspace(const CheckedCall& call) const;

  std::shared_ptr<backend::Backend> backend_;
  std::shared_ptr<KernelProvider> kernels_;
  std::atomic<MissPolicy> on_miss_ = MissPolicy::compile;
  std::atomic<const TunedTiles*> tuned_ = nullptr;  ///< the last of those kept, so that a call takes no lock
  std::mutex tuned_mutex_;
  std::vector<std::unique_ptr<const TunedTiles>> kept_tuned_;  ///< calls may still be reading an older one
  CompileQueue queue_;                                         // its tasks end before the others go
  StandIns stand_ins_{kernels_, queue_};
};

}  // namespace flashspan::attention
