// attention.cpp -- Attention: the public calls put into the form of the path from mask to launch.
#include "flashspan/attention.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "runtime/api/backends.hpp"
#include "runtime/api/kernel_records.hpp"
#include "runtime/api/kernel_stores.hpp"
#include "runtime/api/log_sink.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/attention_op.hpp"
#include "runtime/attention/choose_spec.hpp"

namespace flashspan {

struct Attention::State {
  attention::AttentionOp op;
  Mask full = Mask::full();

  template <typename Call>
  void fill_common(const Call& call, attention::AttentionCall& filled) const {
    filled.query = call.query;
    filled.key = call.key;
    filled.value = call.value;
    filled.sink = call.sink;
    filled.out = call.out;
    filled.lse = call.lse;
    filled.mask = call.mask != nullptr ? &call.mask->state() : &full.state();
    filled.score = call.score != nullptr ? &call.score->state() : nullptr;
    filled.scale = call.scale;
    filled.workspace = call.workspace;
    filled.workspace_bytes = call.workspace_bytes;
    filled.plan = call.plan;
    filled.stream = call.stream;
  }

  [[nodiscard]] attention::AttentionCall call_of(const ForwardCall& call) const {
    attention::AttentionCall filled;
    filled.direction = Direction::forward;
    fill_common(call, filled);
    return filled;
  }

  [[nodiscard]] attention::AttentionCall call_of(const BackwardCall& call) const {
    attention::AttentionCall filled;
    filled.direction = Direction::backward;
    fill_common(call, filled);
    filled.out_gradient = call.out_gradient;
    filled.lse_gradient = call.lse_gradient;
    filled.query_gradient = call.query_gradient;
    filled.key_gradient = call.key_gradient;
    filled.value_gradient = call.value_gradient;
    filled.deterministic = call.deterministic;
    filled.sink_gradient = call.sink_gradient;
    for (const NamedTensor& result : call.score_gradients) {
      filled.score_gradients.push_back({result.name, result.view});
    }
    return filled;
  }

  [[nodiscard]] Result<KernelRecord> prepare(const attention::AttentionCall& call) {
    const auto provided = op.prepare(call);
    if (!provided) return provided.error();
    const attention::ReadyKernel& ready = *provided->ready;
    return api::record_of(ready.metadata, ready.key, provided->warm ? "loaded" : cache::to_string(ready.outcome),
                          ready.spec.lowering);
  }
};

Result<Attention> Attention::open(Device device, const AttentionOptions& options) {
  const api::Settings& settings = api::settings();
  auto backend = api::open_backend(device, settings);
  if (!backend) return backend.error();
  const auto max_loaded = api::max_loaded_kernels(settings, attention::default_max_loaded_kernels);
  if (!max_loaded) return max_loaded.error();
  const LogSink log = options.log ? options.log : api::standard_log(settings.log);
  const auto folder = api::cache_folder(settings, options.cache_dir);
  auto kernels = std::make_shared<attention::KernelProvider>(*backend, api::open_kernel_cache(folder, log),
                                                             api::dump_folders(settings, folder), log, *max_loaded);
  return Attention(std::make_shared<State>(State{attention::AttentionOp(std::move(*backend), std::move(kernels))}));
}

Device Attention::device() const { return state_->op.facts().device; }

Result<std::int64_t> Attention::workspace_bytes(const ForwardCall& call) const {
  return state_->op.workspace_bytes(state_->call_of(call));
}

Result<std::int64_t> Attention::workspace_bytes(const BackwardCall& call) const {
  return state_->op.workspace_bytes(state_->call_of(call));
}

Result<KernelRecord> Attention::prepare(const ForwardCall& call) { return state_->prepare(state_->call_of(call)); }

Result<KernelRecord> Attention::prepare(const BackwardCall& call) { return state_->prepare(state_->call_of(call)); }

Result<void> Attention::forward(const ForwardCall& call) { return state_->op.run(state_->call_of(call)); }

Result<void> Attention::backward(const BackwardCall& call) { return state_->op.run(state_->call_of(call)); }

}  // namespace flashspan
