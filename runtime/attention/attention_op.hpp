// attention_op.hpp -- AttentionOp: the one path of every call, forward or backward: validate, choose, provide, plan,
// launch.
#pragma once

#include <cstdint>
#include <memory>

#include "flashspan/core/error.hpp"
#include "runtime/attention/attention_call.hpp"
#include "runtime/attention/kernel_provider.hpp"
#include "runtime/backend/backend.hpp"

namespace flashspan::attention {

/// A checked call: its kernel's identity and the arguments of its launch.
struct CheckedCall {
  kernel::KernelSpec spec;
  backend::LaunchArgs args;
};

class AttentionOp {
 public:
  AttentionOp(std::shared_ptr<backend::Backend> backend, std::shared_ptr<KernelProvider> kernels)
      : backend_(std::move(backend)), kernels_(std::move(kernels)) {}

  [[nodiscard]] const backend::DeviceFacts& facts() const { return backend_->facts(); }
  [[nodiscard]] Result<std::int64_t> workspace_bytes(const AttentionCall& call) const;
  /// The kernel that the call takes, on the device; the workspace is not looked at.
  [[nodiscard]] Result<KernelProvider::Provided> prepare(const AttentionCall& call);
  /// Error, before anything is queued: as validate(), KernelProvider::get(), check_plan() and the back end.
  [[nodiscard]] Result<void> run(const AttentionCall& call);

 private:
  /// The kernel of a call that is about to be queued. Error: as KernelProvider::get(), and if it is not on the device,
  /// workspace_too_small, and bad_argument if the call's stream is being captured.
  [[nodiscard]] Result<KernelProvider::Provided> provide(const AttentionCall& call, const CheckedCall& checked);

  std::shared_ptr<backend::Backend> backend_;
  std::shared_ptr<KernelProvider> kernels_;
};

}  // namespace flashspan::attention
