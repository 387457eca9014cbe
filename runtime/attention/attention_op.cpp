// attention_op.cpp -- the path from a call to its launch, on one screen.
#include "runtime/attention/attention_op.hpp"

#include <cmath>
#include <utility>

#include "codegen/kernel/tile_config.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/attention/validate.hpp"

namespace flashspan::attention {

namespace {

/// A checked call: its kernel's identity and the arguments of its launch.
struct CheckedCall {
  kernel::KernelSpec spec;
  backend::LaunchArgs args;
};

backend::LaunchArgs launch_args(const AttentionCall& call, const AttentionShape& shape) {
  backend::LaunchArgs args;
  args.shape = shape;
  args.query = call.query;
  args.key = call.key;
  args.value = call.value;
  args.out = call.out;
  args.lse = call.lse;
  args.out_gradient = call.out_gradient;
  args.lse_gradient = call.lse_gradient;
  args.query_gradient = call.query_gradient;
  args.key_gradient = call.key_gradient;
  args.value_gradient = call.value_gradient;
  args.scale = call.scale.value_or(1.0F / std::sqrt(static_cast<float>(shape.head_dim_qk)));
  args.mask_program = &call.mask->program;
  args.mask_bindings = &call.mask->bindings;
  if (call.score != nullptr) {
    args.score_program = &call.score->program;
    args.score_bindings = &call.score->bindings;
  }
  args.workspace = call.workspace;
  args.workspace_bytes = call.workspace_bytes;
  args.stream = call.stream;
  return args;
}

Result<CheckedCall> check(const AttentionCall& call, const backend::DeviceFacts& facts) {
  const auto shape = validate(call, facts);
  if (!shape) return shape.error();
  const SpecChoice choice{call.direction,
                          facts.target,
                          call.query.dtype,
                          static_cast<int>(shape->head_dim_qk),
                          static_cast<int>(shape->head_dim_v),
                          rows_aligned(call),
                          kernel::worth_splitting(*shape)};
  auto spec = choose_spec(choice, *call.mask, call.score);
  if (!spec) return spec.error();
  return CheckedCall{std::move(*spec), launch_args(call, *shape)};
}

/// True if the call has no result to write.
bool writes_nothing(const AttentionCall& call) {
  const CallTensors tensors(call);
  for (const CallTensor& tensor : tensors.all()) {
    if (tensor.role == Role::written && tensor.view->given() && tensor.view->element_count() != 0) return false;
  }
  return true;
}

UserText user_text(const AttentionCall& call) {
  return {&call.mask->program.source(), call.score != nullptr ? &call.score->program.source() : nullptr};
}

}  // namespace

Result<std::int64_t> AttentionOp::workspace_bytes(const AttentionCall& call) const {
  const auto checked = check(call, facts());
  if (!checked) return checked.error();
  return backend_->workspace_bytes(checked->spec, checked->args);
}

Result<KernelProvider::Provided> AttentionOp::prepare(const AttentionCall& call) {
  const auto checked = check(call, facts());
  if (!checked) return checked.error();
  return kernels_->get(checked->spec, user_text(call));
}

Result<KernelProvider::Provided> AttentionOp::provide(const AttentionCall& call, const kernel::KernelSpec& spec) {
  if (auto warm = kernels_->find(spec)) return KernelProvider::Provided{std::move(warm), true};
  // Loading a module is work on the device, which would end up in the graph or break its capture.
  if (backend_->is_capturing(call.stream)) {
    return bad_argument("stream", "one that is being captured, and a call whose kernel is not loaded",
                        "calls that prepare() was called for before the capture");
  }
  return kernels_->get(spec, user_text(call));
}

Result<void> AttentionOp::run(const AttentionCall& call) {
  const auto checked = check(call, facts());
  if (!checked) return checked.error();
  if (writes_nothing(call)) return {};
  const auto takes = backend_->workspace_bytes(checked->spec, checked->args);
  if (auto workspace = check_workspace(call, takes); !workspace) return workspace.error();
  const auto provided = provide(call, checked->spec);
  if (!provided) return provided.error();
  return backend_->run(*provided->ready->kernel, checked->spec, checked->args);
}

}  // namespace flashspan::attention
