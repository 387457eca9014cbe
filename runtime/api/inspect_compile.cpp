// inspect_compile.cpp -- kernels compiled into the cache for architectures that need not be there.
#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "flashspan/inspect.hpp"
#include "runtime/api/backends.hpp"
#include "runtime/api/kernel_records.hpp"
#include "runtime/api/kernel_stores.hpp"
#include "runtime/api/log_sink.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "runtime/attention/kernel_provider.hpp"
#include "runtime/attention/score_gradients.hpp"
#include "runtime/attention/validate.hpp"
#include "runtime/attention/validate_program.hpp"
#include "runtime/cuda/cuda_backend.hpp"

namespace flashspan {

namespace {

struct Task {
  Arch arch;
  Direction direction;
};

struct Compilation {
  const CompileRequest& request;
  std::string score_gradients;  ///< as in KernelSpec
  std::shared_ptr<cache::KernelCache> cache;
  std::vector<std::filesystem::path> dump_folders;
  LogSink log;
};

attention::SpecChoice choice_of(const Task& task, const Compilation& compilation) {
  const CompileRequest& request = compilation.request;
  attention::SpecChoice choice;
  choice.direction = task.direction;
  choice.target = {DeviceKind::cuda, task.arch};
  choice.dtype = request.dtype;
  choice.head_dim_qk = request.head_dim_qk;
  choice.head_dim_v = request.head_dim_v;
  if (task.direction == Direction::backward) choice.score_gradients = compilation.score_gradients;
  choice.aligned = request.aligned;
  choice.few_rows = request.few_rows;
  choice.needs.deterministic = request.deterministic;
  choice.tile = request.tile;
  return choice;
}

CompiledKernel compile_one(const Task& task, const Compilation& compilation) {
  const CompileRequest& request = compilation.request;
  const MaskState& mask = request.mask->state();
  const ScoreState* score = request.score != nullptr ? &request.score->state() : nullptr;
  CompiledKernel result;
  result.arch = task.arch;
  result.direction = task.direction;
  const auto spec = attention::choose_spec(choice_of(task, compilation), mask, score);
  if (!spec) {
    result.error = spec.error();
    return result;
  }
  result.record.spec = spec->summary();
  const auto keep_source = [&result](const kernel::KernelSpec& of) {
    if (const auto source = attention::emit(kernel::Language::cuda, of)) result.source = source->flattened();
  };
  std::shared_ptr<backend::Backend> backend =
      cuda::make_compile_only_backend(task.arch, api::nvrtc_search(api::settings()));
  attention::KernelProvider provider(std::move(backend), compilation.cache, compilation.dump_folders, compilation.log);
  const auto built =
      provider.build(*spec, {&mask.program.source(), score != nullptr ? &score->program.source() : nullptr});
  keep_source(built ? built->spec : *spec);
  if (!built) {
    result.error = built.error();
    return result;
  }
  result.record = api::record_of(built->metadata, built->key, cache::to_string(built->outcome), built->spec.lowering);
  return result;
}

/// Runs the tasks on `threads` threads; `progress` is called on this thread, in the order in which they finish.
std::vector<CompiledKernel> compile_all(const std::vector<Task>& tasks, int threads, const Compilation& compilation,
                                        const std::function<void(const CompiledKernel&)>& progress) {
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
      results[mine] = compile_one(tasks[mine], compilation);
      const std::scoped_lock lock(mutex);
      finished.push_back(mine);
      changed.notify_one();
    }
  };
  const std::size_t wanted = std::min(tasks.size(), static_cast<std::size_t>(std::max(threads, 1)));
  std::vector<std::jthread> workers;
  workers.reserve(wanted);
  for (std::size_t worker = 0; worker < wanted; ++worker) workers.emplace_back(work);
  for (std::size_t reported = 0; reported < tasks.size(); ++reported) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return finished.size() > reported; });
    const std::size_t index = finished[reported];
    lock.unlock();
    if (progress) progress(results[index]);
  }
  return results;
}

}  // namespace

Result<std::vector<CompiledKernel>> compile_ahead(const CompileRequest& request, int threads,
                                                  const std::function<void(const CompiledKernel&)>& progress) {
  AttentionShape sizes;
  sizes.head_dim_qk = request.head_dim_qk;
  sizes.head_dim_v = request.head_dim_v;
  if (auto served = attention::check_dtype_and_head_dims(request.dtype, sizes, DeviceKind::cuda); !served) {
    return served.error();
  }
  auto score_gradients = attention::score_gradient_names(request.score != nullptr ? &request.score->state() : nullptr,
                                                         request.score_gradients);
  if (!score_gradients) return score_gradients.error();
  const api::Settings& settings = api::settings();
  if (const auto nvrtc = cuda::open_nvrtc(api::nvrtc_search(settings)); !nvrtc) return nvrtc.error();
  const LogSink log = api::standard_log(settings.log);
  const auto folder = api::cache_folder(settings, request.cache_dir);

  const Mask everything = Mask::full();
  CompileRequest filled = request;
  if (filled.mask == nullptr) filled.mask = &everything;
  std::vector<Task> tasks;
  for (const Arch& arch : request.archs) {
    for (Direction direction : request.directions) tasks.push_back({arch, direction});
  }
  const Compilation compilation{filled, *std::move(score_gradients),
                                api::open_kernel_cache(folder, api::cache_layers(settings, request.cache_path), log),
                                api::dump_folders(settings, folder), log};
  return compile_all(tasks, threads, compilation, progress);
}

}  // namespace flashspan
