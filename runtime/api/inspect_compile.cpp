// inspect_compile.cpp -- kernels compiled into the cache for architectures that need not be there.
#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "codegen/kernel/arch_limits.hpp"
#include "flashspan/inspect.hpp"
#include "runtime/api/backends.hpp"
#include "runtime/api/kernel_records.hpp"
#include "runtime/api/kernel_stores.hpp"
#include "runtime/api/log_sink.hpp"
#include "runtime/api/network_plugin.hpp"
#include "runtime/api/provider_options.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/check_spec.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "runtime/attention/compile_limits.hpp"
#include "runtime/attention/kernel_provider.hpp"
#include "runtime/attention/score_gradients.hpp"
#include "runtime/attention/tuning_table.hpp"
#include "runtime/attention/validate.hpp"
#include "runtime/attention/validate_program.hpp"
#include "runtime/cuda/cuda_backend.hpp"

namespace flashspan {

namespace {

/// Where kernels of one kind of device are compiled into.
struct Stores {
  std::shared_ptr<cache::KernelCache> cache;
  attention::ProviderOptions providing;
};

Result<Stores> open_stores(DeviceKind kind, const std::optional<std::string>& cache_dir,
                           const std::optional<std::string>& cache_path) {
  const api::Settings& settings = api::settings();
  const LogSink log = api::standard_log(settings.log);
  const auto folder = api::cache_folder(settings, cache_dir);
  auto service = api::open_service({}, settings, kind, log);
  if (!service) return service.error();
  auto shared = api::open_shared_store({}, settings, log);
  if (!shared) return shared.error();
  Stores stores{api::open_kernel_cache(folder, api::cache_layers(settings, cache_path), log, *std::move(shared)),
                api::provider_options(settings, folder, log)};
  stores.providing.service = *std::move(service);
  return stores;
}

/// Requests of one folder share what is open: a log, connections, and what is known of a service that does not answer.
class OpenedStores {
 public:
  Result<Stores> of(const CompileRequest& request) {
    const std::pair folders{request.cache_dir, request.cache_path};
    if (const auto found = stores_.find(folders); found != stores_.end()) return found->second;
    auto opened = open_stores(DeviceKind::cuda, request.cache_dir, request.cache_path);
    if (opened) stores_.emplace(folders, *opened);
    return opened;
  }

 private:
  std::map<std::pair<std::optional<std::string>, std::optional<std::string>>, Stores> stores_;
};

/// A request whose arguments a call would take, with a mask.
struct CheckedRequest {
  Mask everything = Mask::full();
  const CompileRequest& request;
  std::string score_gradients;  ///< as in KernelSpec

  [[nodiscard]] const MaskState& mask() const { return (request.mask != nullptr ? *request.mask : everything).state(); }
  [[nodiscard]] const ScoreState* score() const { return request.score != nullptr ? &request.score->state() : nullptr; }
};

/// A request and where its kernels go.
struct Compilation {
  CheckedRequest request;
  Stores stores;
};

/// One kernel of a request.
struct KernelChoice {
  Arch arch;
  Direction direction;
  std::optional<TileConfig> tile;
};

struct Task {
  std::size_t request;  ///< its place
  KernelChoice kernel;
};

/// Refers to `request`. Error: as compile_ahead(), but for a missing NVRTC.
Result<CheckedRequest> checked(const CompileRequest& request) {
  AttentionShape sizes;
  sizes.head_dim_qk = request.head_dim_qk;
  sizes.head_dim_v = request.head_dim_v;
  if (auto served = attention::check_dtype_and_head_dims(request.dtype, sizes, DeviceKind::cuda); !served) {
    return served.error();
  }
  for (const Arch& arch : request.archs) {
    if (auto served = kernel::check_arch(arch); !served) return served.error();
  }
  CheckedRequest checked{.request = request, .score_gradients = {}};
  auto score_gradients = attention::score_gradient_names(checked.score(), request.score_gradients);
  if (!score_gradients) return score_gradients.error();
  checked.score_gradients = *std::move(score_gradients);
  return checked;
}

void build_into(CompiledKernel& result, const kernel::KernelSpec& spec, const attention::UserText& text,
                const std::shared_ptr<backend::Backend>& backend, const Stores& stores) {
  result.record.spec = spec.summary();
  attention::KernelProvider provider(backend, stores.cache, stores.providing);
  const auto built = provider.build(spec, text);
  const auto source = attention::emit(backend->language(), built ? built->spec : spec);
  if (source) result.source = source->flattened();
  if (!built) {
    result.error = built.error();
    return;
  }
  result.record = api::record_of(built->metadata, built->key, cache::to_string(built->outcome), built->spec.lowering);
}

Result<kernel::KernelSpec> spec_of(const KernelChoice& kernel, const CheckedRequest& checked) {
  const CompileRequest& request = checked.request;
  attention::SpecChoice choice;
  choice.direction = kernel.direction;
  choice.target = {DeviceKind::cuda, kernel.arch};
  choice.dtype = request.dtype;
  choice.head_dim_qk = request.head_dim_qk;
  choice.head_dim_v = request.head_dim_v;
  if (kernel.direction == Direction::backward) choice.score_gradients = checked.score_gradients;
  choice.aligned = request.aligned;
  choice.few_rows = request.few_rows;
  choice.needs.deterministic = request.deterministic;
  choice.tile = kernel.tile;
  return attention::choose_spec(choice, checked.mask(), checked.score());
}

/// Every kernel of the request with its own tile, and with the tiles that were found by tuning.
std::vector<KernelChoice> kernels_of(const CheckedRequest& checked) {
  const attention::TunedTiles tuned(checked.request.tunings);
  std::vector<KernelChoice> kernels;
  for (const Arch& arch : checked.request.archs) {
    for (const Direction direction : checked.request.directions) {
      kernels.push_back({arch, direction, checked.request.tile});
      const auto spec = spec_of(kernels.back(), checked);
      if (!spec) continue;  // compile_one() meets the same error
      for (const TileConfig& tile : tuned.tiles_of(*spec)) {
        if (tile != spec->tile) kernels.push_back({arch, direction, tile});
      }
    }
  }
  return kernels;
}

CompiledKernel compile_one(const KernelChoice& kernel, const Compilation& compilation) {
  const CheckedRequest& checked = compilation.request;
  CompiledKernel result;
  result.arch = kernel.arch;
  result.direction = kernel.direction;
  const auto spec = spec_of(kernel, checked);
  if (!spec) {
    result.error = spec.error();
    return result;
  }
  const ScoreState* const score = checked.score();
  build_into(result, *spec, {&checked.mask().program.source(), score != nullptr ? &score->program.source() : nullptr},
             cuda::make_compile_only_backend(kernel.arch, api::nvrtc_search(api::settings())), compilation.stores);
  return result;
}

/// Runs the tasks on `threads` threads; `progress` is called on this thread, in the order in which they finish.
std::vector<CompiledKernel> compile_all(const std::vector<Task>& tasks, const std::vector<Compilation>& compilations,
                                        int threads,
                                        const std::function<void(std::size_t, const CompiledKernel&)>& progress) {
  std::vector<CompiledKernel> results(tasks.size());
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t next = 0;
  std::vector<std::size_t> finished;
  const auto work = [&] {
    while (true) {
      std::size_t mine = 0;
      {
        const std::scoped_lock lock(mutex);
        if (next == tasks.size()) return;
        mine = next++;
      }
      results[mine] = compile_one(tasks[mine].kernel, compilations[tasks[mine].request]);
      const std::scoped_lock lock(mutex);
      finished.push_back(mine);
      changed.notify_one();
    }
  };
  const int most = threads > 0 ? threads : attention::machine_resources().cores;
  const std::size_t wanted = std::min(tasks.size(), static_cast<std::size_t>(most));
  std::vector<std::jthread> workers;
  workers.reserve(wanted);
  for (std::size_t worker = 0; worker < wanted; ++worker) workers.emplace_back(work);
  for (std::size_t reported = 0; reported < tasks.size(); ++reported) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return finished.size() > reported; });
    const std::size_t index = finished[reported];
    lock.unlock();
    if (progress) progress(tasks[index].request, results[index]);
  }
  return results;
}

}  // namespace

Result<std::vector<std::vector<CompiledKernel>>> compile_ahead(
    const std::vector<CompileRequest>& requests, int threads,
    const std::function<void(std::size_t, const CompiledKernel&)>& progress) {
  std::vector<Compilation> compilations;
  std::vector<Task> tasks;
  OpenedStores opened;
  for (std::size_t place = 0; place < requests.size(); ++place) {
    const CompileRequest& request = requests[place];
    auto valid = checked(request);
    if (!valid) return valid.error();
    for (const KernelChoice& kernel : kernels_of(*valid)) tasks.push_back({place, kernel});
    auto stores = opened.of(request);
    if (!stores) return stores.error();
    compilations.push_back({*std::move(valid), *std::move(stores)});
  }
  if (const auto nvrtc = cuda::open_nvrtc(api::nvrtc_search(api::settings())); !nvrtc) return nvrtc.error();
  std::vector<CompiledKernel> compiled = compile_all(tasks, compilations, threads, progress);
  std::vector<std::vector<CompiledKernel>> results(requests.size());
  for (std::size_t index = 0; index < tasks.size(); ++index) {
    results[tasks[index].request].push_back(std::move(compiled[index]));
  }
  return results;
}

Result<std::vector<CompiledKernel>> compile_ahead(const CompileRequest& request, int threads,
                                                  const std::function<void(const CompiledKernel&)>& progress) {
  auto compiled = compile_ahead(std::vector{request}, threads, [&](std::size_t, const CompiledKernel& kernel) {
    if (progress) progress(kernel);
  });
  if (!compiled) return compiled.error();
  return std::move(compiled->front());
}

Result<int> count_kernels(const CompileRequest& request) {
  const auto valid = checked(request);
  if (!valid) return valid.error();
  return static_cast<int>(kernels_of(*valid).size());
}

Result<std::vector<TuningRecord>> tunings_for(const CompileRequest& request, const std::vector<TuningRecord>& known) {
  const auto valid = checked(request);
  if (!valid) return valid.error();
  std::vector<kernel::KernelSpec> kernels;
  for (const Arch& arch : request.archs) {
    for (const Direction direction : request.directions) {
      const auto spec = spec_of({arch, direction, std::nullopt}, *valid);
      if (spec) kernels.push_back(attention::tuned_family(*spec));
    }
  }
  std::vector<TuningRecord> found;
  std::ranges::copy_if(known, std::back_inserter(found), [&kernels](const TuningRecord& record) {
    const auto spec = kernel::KernelSpec::from_text(record.spec);
    return spec && std::ranges::find(kernels, attention::tuned_family(*spec)) != kernels.end();
  });
  return found;
}

Result<CompiledKernel> compile_spec(const std::string& text, const std::optional<std::string>& cache_dir,
                                    const std::optional<std::string>& cache_path) {
  const auto spec = kernel::KernelSpec::from_text(text);
  if (!spec) return spec.error();
  if (auto served = attention::check_spec(*spec); !served) return served.error();
  CompiledKernel result;
  result.arch = spec->target.arch;
  result.direction = spec->direction;
  std::shared_ptr<backend::Backend> backend;
  if (spec->target.kind == DeviceKind::cuda) {
    backend = cuda::make_compile_only_backend(spec->target.arch, api::nvrtc_search(api::settings()));
  } else {
    auto cpu = api::open_cpu_backend(api::settings());
    if (!cpu) return cpu.error();
    backend = *std::move(cpu);
  }
  const auto stores = open_stores(spec->target.kind, cache_dir, cache_path);
  if (!stores) return stores.error();
  build_into(result, *spec, {&spec->mask, spec->score.empty() ? nullptr : &spec->score}, backend, *stores);
  return result;
}

}  // namespace flashspan
