// attention_op.cpp -- the path from a call to its launch, on one screen.
#include "runtime/attention/attention_op.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "codegen/kernel/tile_config.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "runtime/attention/plan_reuse.hpp"
#include "runtime/attention/score_gradients.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/attention/validate.hpp"
#include "runtime/backend/workspace_check.hpp"

namespace flashspan::attention {

namespace {

backend::LaunchArgs launch_args(const AttentionCall& call, const AttentionShape& shape) {
  backend::LaunchArgs args;
  args.shape = shape;
  args.query = call.query;
  args.key = call.key;
  args.value = call.value;
  args.sink = call.sink;
  args.out = call.out;
  args.lse = call.lse;
  args.out_gradient = call.out_gradient;
  args.lse_gradient = call.lse_gradient;
  args.query_gradient = call.query_gradient;
  args.key_gradient = call.key_gradient;
  args.value_gradient = call.value_gradient;
  args.sink_gradient = call.sink_gradient;
  args.score_gradients = score_gradient_results(call);
  args.deterministic = call.deterministic;
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

/// With the call's own tile, or the built-in one. Error: as choose_spec().
Result<kernel::KernelSpec> untuned_spec(const AttentionCall& call, const AttentionShape& shape,
                                        const backend::DeviceFacts& facts) {
  const RowPlacement rows = row_placement(call);
  const SpecChoice choice{call.direction,
                          facts.target,
                          call.query.dtype,
                          static_cast<int>(shape.head_dim_qk),
                          static_cast<int>(shape.head_dim_v),
                          score_gradient_names(call),
                          rows.aligned,
                          kernel::worth_splitting(shape),
                          {call.deterministic, rows.expanded},
                          call.tile};
  return choose_spec(choice, *call.mask, call.score);
}

/// True if the call has no result to write.
bool writes_nothing(const AttentionCall& call) {
  const auto has_elements = [](const TensorView& view) { return view.given() && view.element_count() != 0; };
  const CallTensors tensors(call);
  for (const CallTensor& tensor : tensors.all()) {
    if (tensor.role == Role::written && has_elements(*tensor.view)) return false;
  }
  return std::ranges::none_of(call.score_gradients, has_elements, &ScoreGradient::view);
}

}  // namespace

UserText user_text(const AttentionCall& call) {
  return {&call.mask->program.source(), call.score != nullptr ? &call.score->program.source() : nullptr};
}

Result<CheckedCall> AttentionOp::check(const AttentionCall& call) const {
  const auto shape = validate(call, facts());
  if (!shape) return shape.error();
  auto spec = untuned_spec(call, *shape, facts());
  if (!spec) return spec.error();
  const TunedTiles* const tuned = tuned_.load(std::memory_order_acquire);
  if (tuned != nullptr && !call.tile) tuned->choose(*spec, *shape);
  return CheckedCall{std::move(*spec), launch_args(call, *shape)};
}

Result<kernel::KernelSpec> AttentionOp::untuned_spec_of(const AttentionCall& call) const {
  const auto shape = validate(call, facts());
  if (!shape) return shape.error();
  return untuned_spec(call, *shape, facts());
}

void AttentionOp::use_tuned(std::unique_ptr<const TunedTiles> tiles) {
  const std::scoped_lock lock(tuned_mutex_);
  tuned_.store(tiles->empty() ? nullptr : tiles.get(), std::memory_order_release);
  kept_tuned_.push_back(std::move(tiles));
}

Result<std::int64_t> AttentionOp::workspace_bytes(const AttentionCall& call) const {
  const auto checked = check(call);
  if (!checked) return checked.error();
  return largest_workspace(*checked);
}

std::int64_t AttentionOp::largest_workspace(const CheckedCall& call) const {
  std::int64_t bytes = backend_->workspace_bytes(call.spec, call.args);
  const auto allow_for = [&](const std::optional<kernel::KernelSpec>& spec) {
    if (spec) bytes = std::max(bytes, backend_->workspace_bytes(*spec, call.args));
  };
  for (auto next = kernel::fallback_of(call.spec); next; next = kernel::fallback_of(*next)) allow_for(next);
  if (on_miss_ == MissPolicy::interpret) allow_for(kernel::interpreted_of(call.spec));
  return bytes;
}

Result<void> AttentionOp::freeze(MissPolicy on_miss) {
  if (on_miss == MissPolicy::interpret) {
    if (auto made = stand_ins_.make(); !made) return made;
  }
  on_miss_ = on_miss;
  return {};
}

Result<kernel::KernelSpec> AttentionOp::spec_of(const AttentionCall& call) const {
  auto checked = check(call);
  if (!checked) return checked.error();
  return std::move(checked->spec);
}

Result<KernelProvider::Provided> AttentionOp::prepare(const AttentionCall& call) {
  const auto spec = spec_of(call);
  if (!spec) return spec.error();
  return kernels_->get(*spec, user_text(call));
}

Result<KernelProvider::Provided> AttentionOp::provide(const AttentionCall& call, const CheckedCall& checked) {
  if (auto warm = kernels_->find(checked.spec)) return KernelProvider::Provided{std::move(warm), true};
  // What a warm call takes, its back end checks. A call that is refused should not compile anything.
  const std::int64_t takes = largest_workspace(checked);
  if (auto large = backend::check_workspace(call.workspace, call.workspace_bytes, takes); !large) return large.error();
  // Loading a module is work on the device, which would end up in the graph or break its capture.
  if (backend_->is_capturing(call.stream)) {
    return bad_argument("stream", "one that is being captured, and a call whose kernel is not loaded",
                        "calls that prepare() was called for before the capture");
  }
  const MissPolicy on_miss = on_miss_;
  if (on_miss == MissPolicy::interpret) return provide_stand_in(call, checked);
  return kernels_->get(checked.spec, user_text(call), on_miss);
}

Result<KernelProvider::Provided> AttentionOp::provide_stand_in(const AttentionCall& call, const CheckedCall& checked) {
  if (!stand_ins_.is_queued(checked.spec)) {  // what is in the cache is no miss
    auto own = kernels_->get(checked.spec, user_text(call), MissPolicy::refuse);
    if (own || own.error().code != ErrorCode::not_prepared) return own;
  }
  return stand_ins_.serve(checked.spec, user_text(call));
}

std::shared_ptr<const ReadyKernel> AttentionOp::kernel_of_plan(const TilePlan& plan, const kernel::KernelSpec& spec,
                                                               const std::shared_ptr<const ReadyKernel>& own) const {
  if (!plan.made || plan.kernel == own->key.bytes) return own;
  auto stand_in = stand_ins_.find(spec);
  return stand_in != nullptr && stand_in->key.bytes == plan.kernel ? stand_in : own;
}

Result<void> AttentionOp::launch(const AttentionCall& call, const CheckedCall& checked, const ReadyKernel& ready) {
  auto done = backend_->run(*ready.kernel, ready.spec, checked.args);
  if (!done) return done;
  Metrics& metrics = kernels_->metrics();
  metrics.launches[call.direction].add();
  if (ready.spec.lowering != mask::LoweringKind::none) {
    (checked.args.planned ? metrics.reuses : metrics.plans)[call.direction].add();
  }
  const bool stands_in = ready.spec.lowering == mask::LoweringKind::interpreted &&
                         checked.spec.lowering != mask::LoweringKind::interpreted;
  if (stands_in) metrics.stand_in_launches.add();
  return done;
}

Result<void> AttentionOp::run(const AttentionCall& call) {
  auto checked = check(call);
  if (!checked) return checked.error();
  if (writes_nothing(call)) return {};
  const auto provided = provide(call, *checked);
  if (!provided) return provided.error();
  if (call.plan == nullptr) return launch(call, *checked, *provided->ready);
  const std::shared_ptr<const ReadyKernel> planner = kernel_of_plan(*call.plan, checked->spec, provided->ready);
  const ReadyKernel& ready = *planner;
  const TilePlan needed = plan_of(call, checked->args.shape, ready);
  if (auto same = check_plan(*call.plan, needed); !same) return same.error();
  checked->args.planned = call.plan->made;
  auto done = launch(call, *checked, ready);
  *call.plan = done ? needed : TilePlan{};
  return done;
}

}  // namespace flashspan::attention
