// attention.cpp -- Attention: the public calls put into the form of the path from mask to launch.
#include "flashspan/attention.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/api/backends.hpp"
#include "runtime/api/kernel_records.hpp"
#include "runtime/api/kernel_stores.hpp"
#include "runtime/api/log_sink.hpp"
#include "runtime/api/network_plugin.hpp"
#include "runtime/api/provider_options.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/api/states.hpp"
#include "runtime/api/tuner.hpp"
#include "runtime/api/tuning_files.hpp"
#include "runtime/attention/attention_op.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "runtime/attention/compile_limits.hpp"
#include "runtime/attention/compile_queue.hpp"
#include "runtime/attention/prepare_all.hpp"
#include "runtime/attention/tuning_table.hpp"
#include "runtime/attention/validate.hpp"

namespace flashspan {

namespace {

KernelRecord record_of(const attention::KernelProvider::Provided& provided) {
  const attention::ReadyKernel& ready = *provided.ready;
  return api::record_of(ready.metadata, ready.key, provided.warm ? "loaded" : cache::to_string(ready.outcome),
                        ready.spec.lowering);
}

Result<KernelRecord> record_of(const Result<attention::KernelProvider::Provided>& provided) {
  if (!provided) return provided.error();
  return record_of(*provided);
}

/// Those that calls on this device may go by. The compiler is opened only if there are any.
std::vector<TuningRecord> tunings_of(backend::Backend& backend, std::vector<TuningRecord> records) {
  records = attention::records_of_device(std::move(records), backend.facts(), std::nullopt);
  if (records.empty()) return records;
  const auto compiler = backend.compiler_identity();
  return attention::records_of_device(std::move(records), backend.facts(),
                                      compiler ? std::optional(*compiler) : std::nullopt);
}

}  // namespace

struct Attention::State {
  State(std::shared_ptr<backend::Backend> backend, std::shared_ptr<attention::KernelProvider> kernels,
        int compile_threads)
      : op(std::move(backend), std::move(kernels), [compile_threads](int running) {
          return attention::may_compile(attention::machine_resources(), compile_threads, running);
        }) {}

  attention::AttentionOp op;
  Mask full = Mask::full();
  std::optional<std::filesystem::path> tuning_file;
  std::mutex tuning_mutex;
  std::vector<TuningRecord> tunings;  ///< of this device and compiler, those of this process last

  /// Adds to what calls take their tiles from.
  void add_tunings(const std::vector<TuningRecord>& records) {
    const std::scoped_lock lock(tuning_mutex);
    tunings.insert(tunings.end(), records.begin(), records.end());
    op.use_tuned(std::make_unique<const attention::TunedTiles>(tunings));
  }

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
    filled.tile = call.tile;
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
    return record_of(op.prepare(call));
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
  const auto environment_accepts = api::accepts_other_nvrtc(settings);
  if (!environment_accepts) return environment_accepts.error();
  const auto layers = api::cache_layers(settings, options.cache_path);
  attention::ProviderOptions providing = api::provider_options(settings, folder, log);
  providing.max_loaded = *max_loaded;
  providing.accept_other_compilers = options.accept_other_nvrtc.value_or(*environment_accepts);
  providing.hooks = options.hooks;
  const api::RemoteChoice remote{options.service, options.service_token, options.shared_store,
                                 options.signing_key_file};
  auto service = api::open_service(remote, settings, device.kind, log);
  if (!service) return service.error();
  providing.service = *std::move(service);
  auto shared = api::open_shared_store(remote, settings, log);
  if (!shared) return shared.error();
  auto kernels = std::make_shared<attention::KernelProvider>(
      *backend, api::open_kernel_cache(folder, layers, log, *std::move(shared)), std::move(providing));
  auto state = std::make_shared<State>(*backend, std::move(kernels), options.compile_threads);
  state->tuning_file = api::tuning_file(settings, options.tuning_file, folder);
  if (auto found = tunings_of(**backend, api::read_tunings(settings, options.tuning_file, folder, layers, log));
      !found.empty()) {
    state->add_tunings(found);
  }
  return Attention(std::move(state));
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

std::vector<Result<KernelRecord>> Attention::prepare_all(const std::vector<AnyCall>& calls,
                                                         const PrepareOptions& options) {
  std::vector<attention::AttentionCall> filled;
  filled.reserve(calls.size());
  for (const AnyCall& call : calls) {
    filled.push_back(std::visit([this](const auto& direction) { return state_->call_of(direction); }, call));
  }
  std::vector<Result<KernelRecord>> records(calls.size(), KernelRecord{});
  const auto done = [&](std::size_t call, const Result<attention::KernelProvider::Provided>& provided) {
    records[call] = record_of(provided);
    if (options.progress) options.progress(call, records[call]);
  };
  attention::prepare_all(state_->op, state_->op.queue(), filled, {options.time_out_seconds, done});
  return records;
}

Result<std::vector<TileResources>> Attention::tiles(const AnyCall& call) const {
  attention::AttentionCall filled =
      std::visit([this](const auto& direction) { return state_->call_of(direction); }, call);
  filled.tile.reset();
  const auto spec = state_->op.untuned_spec_of(filled);
  if (!spec) return spec.error();
  const auto shape = attention::validate(filled, state_->op.facts());
  if (!shape) return shape.error();
  return api::tile_resources(*spec, filled.mask->light, *shape, state_->op.facts().processors);
}

Result<TuneReport> Attention::tune(const AnyCall& call, const TuneOptions& options) {
  const attention::AttentionCall filled =
      std::visit([this](const auto& direction) { return state_->call_of(direction); }, call);
  auto report = api::tune(state_->op, filled, options);
  if (!report || !options.remember) return report;
  state_->add_tunings({report->best});
  if (!state_->tuning_file) return report;
  // What was measured is not lost for want of a file.
  const auto written = merge_tuning_records(state_->tuning_file->string(), {report->best});
  report->remembered = written.has_value();
  if (!written) report->not_remembered = written.error().message();
  return report;
}

Result<void> Attention::freeze(MissPolicy on_miss) { return state_->op.freeze(on_miss); }

Result<void> Attention::forward(const ForwardCall& call) { return state_->op.run(state_->call_of(call)); }

Result<void> Attention::backward(const BackwardCall& call) { return state_->op.run(state_->call_of(call)); }

}  // namespace flashspan
