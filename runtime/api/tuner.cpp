#include "runtime/api/tuner.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "codegen/kernel/resource_model.hpp"
#include "flashspan/device.hpp"
#include "runtime/api/compare_results.hpp"
#include "runtime/api/device_memory.hpp"
#include "runtime/attention/prepare_all.hpp"
#include "runtime/attention/validate.hpp"

namespace flashspan::api {
namespace {

using Clock = std::chrono::steady_clock;
using attention::AttentionCall;
using attention::KernelProvider;

constexpr double hopeless_factor = 1.3;      // of the best median so far
constexpr double least_milliseconds = 1e-4;  // what a clock too coarse to tell is taken for
constexpr double batch_milliseconds = 1.0;   // runs shorter than this are timed several at a time
constexpr int most_runs_a_batch = 50;
constexpr int fewest_batches = 5;
constexpr int most_batches = 100;
constexpr std::size_t most_finalists = 3;
constexpr int rounds_of_finals = 9;
constexpr double finals_milliseconds = 10.0;  // a turn: a device that is told to lower its clock does so within some
constexpr double least_gain = 1.005;          // by less than this, the default stays

std::string first_line(const Error& error) {
  const std::string message = error.message();
  return message.substr(0, message.find('\n'));
}

std::string date_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::string text(std::size_t{21}, '\0');
  text.resize(std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts));
  return text;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

TileResources public_resources(const TileConfig& tile, const kernel::Resources& resources, double cost) {
  return {tile,
          resources.threads,
          resources.shared_bytes,
          resources.shared_limit,
          resources.accumulators,
          resources.registers,
          resources.register_limit,
          resources.blocks,
          resources.occupancy,
          cost};
}

/// One result of the call, as it was before and as the default tile computes it.
struct ComparedResult {
  std::string name;
  TensorView view;
  std::vector<std::byte> poisoned;  ///< what stands there before a candidate runs
  std::vector<std::byte> reference;
};

/// A candidate and the call that takes it.
struct Trial {
  TunedCandidate candidate;
  AttentionCall call;
  TilePlan plan;
  bool ready = false;  ///< its kernel is on the device
};

class Tuner {
 public:
  Tuner(attention::AttentionOp& op, const AttentionCall& call, const TuneOptions& options)
      : op_(op), call_(call), options_(options) {}

  Result<TuneReport> run() {
    if (auto made = make_trials(); !made) return made.error();
    prepare();
    if (auto allocated = allocate_workspace(); !allocated) return allocated.error();
    if (!trials_.front()->ready) return default_failure_;
    if (auto read = read_results(); !read) return read.error();
    if (auto measured = measure_default(); !measured) return measured.error();
    report_done(0);
    for (std::size_t i = 1; i < trials_.size(); ++i) {
      try_candidate(*trials_[i]);
      report_done(i);
    }
    if (auto chosen = choose_best(); !chosen) return chosen.error();
    return finish();
  }

 private:
  [[nodiscard]] bool out_of_time() const {
    return std::chrono::duration<double>(Clock::now() - begun_).count() > options_.time_limit_seconds;
  }

  Result<void> make_trials() {
    AttentionCall untuned = call_;
    untuned.tile.reset();
    auto spec = op_.untuned_spec_of(untuned);
    if (!spec) return spec.error();
    default_spec_ = *std::move(spec);
    const auto shape = attention::validate(call_, op_.facts());
    if (!shape) return shape.error();
    shape_ = *shape;
    const std::vector<TileResources> modelled =
        tile_resources(default_spec_, call_.mask->light, shape_, op_.facts().processors);
    add_trial(resources_of(default_spec_.tile));
    if (options_.tiles.empty()) {
      for (const TileResources& resources : modelled) {
        const bool enough = options_.most_candidates > 0 && std::ssize(trials_) > options_.most_candidates;
        if (resources.tile != default_spec_.tile && !enough) add_trial(resources);
      }
    }
    for (const TileConfig& tile : options_.tiles) {
      const bool known =
          std::ranges::any_of(trials_, [&tile](const auto& trial) { return trial->candidate.resources.tile == tile; });
      if (!known) add_trial(resources_of(tile));
    }
    return {};
  }

  [[nodiscard]] TileResources resources_of(const TileConfig& tile) const {
    kernel::KernelSpec spec = default_spec_;
    spec.tile = tile;
    // What the templates do not take has no resources either.
    if (!kernel::check_tile(spec)) return {.tile = tile};
    const kernel::Resources resources = kernel::resources_of(spec, call_.mask->light);
    return public_resources(tile, resources, kernel::predicted_cost(spec, resources, {shape_, op_.facts().processors}));
  }

  void add_trial(TileResources resources) {
    auto trial = std::make_unique<Trial>();
    trial->candidate.resources = resources;
    trial->call = call_;
    trial->call.tile = resources.tile;
    if (call_.plan != nullptr) trial->call.plan = &trial->plan;
    trials_.push_back(std::move(trial));
  }

  /// Compiles and loads, several at a time.
  void prepare() {
    std::vector<AttentionCall> calls;
    calls.reserve(trials_.size());
    for (const auto& trial : trials_) calls.push_back(trial->call);
    attention::prepare_all(
        op_, op_.queue(), calls,
        {options_.time_limit_seconds,
         [this](std::size_t i, const Result<KernelProvider::Provided>& provided) { note_kernel(i, provided); }});
    // Without the default there is nothing to compare with: it is waited for, however long.
    if (default_failure_.code == ErrorCode::timed_out) note_kernel(0, op_.prepare(trials_.front()->call));
  }

  void note_kernel(std::size_t i, const Result<KernelProvider::Provided>& provided) {
    Trial& trial = *trials_[i];
    if (!provided) {
      trial.candidate.note = first_line(provided.error());
      if (i == 0) default_failure_ = provided.error();
      return;
    }
    const attention::ReadyKernel& kernel = *provided->ready;
    for (const backend::EntryReport& entry : kernel.metadata.report.entries) {
      const bool planner = !entry.name.starts_with("attention");  // whose blocks the tile does not size
      if (!planner) trial.candidate.compiled_registers = std::max(trial.candidate.compiled_registers, entry.registers);
      trial.candidate.spill_bytes += entry.spill_bytes;
    }
    // The default may be served by its fallback, as calls of it are.
    if (i != 0 && kernel.spec.tile != *trial.call.tile) {
      trial.candidate.note = "takes too many registers: " + kernel.spec.summary() + " would serve in its place";
      return;
    }
    if (!kernel::is_launchable(kernel.spec, trial.candidate.compiled_registers)) {
      trial.candidate.note = "takes " + std::to_string(trial.candidate.compiled_registers) +
                             " registers a thread: no block of it fits a multiprocessor";
      return;
    }
    trial.ready = true;
  }

  Result<void> allocate_workspace() {
    std::int64_t bytes = 0;
    for (const auto& trial : trials_) {
      if (!trial->ready) continue;
      const auto needed = op_.workspace_bytes(trial->call);
      if (!needed) return needed.error();
      bytes = std::max(bytes, *needed);
    }
    auto memory = allocate(op_.facts().device, bytes);
    if (!memory) return memory.error();
    workspace_ = *std::move(memory);
    for (const auto& trial : trials_) {
      trial->call.workspace = workspace_.get();
      trial->call.workspace_bytes = bytes;
    }
    return {};
  }

  Result<void> read_results() {
    const attention::CallTensors tensors(call_);
    for (const attention::CallTensor& tensor : tensors.all()) {
      if (tensor.role == attention::Role::written && tensor.view->given())
        add_result(std::string(tensor.argument), *tensor.view);
    }
    for (const attention::ScoreGradient& gradient : call_.score_gradients) add_result(gradient.name, gradient.view);
    for (ComparedResult& result : results_) {
      if (auto copied = read(result, result.poisoned); !copied) return copied;
      poison(result.view, result.poisoned);
    }
    return {};
  }

  void add_result(std::string name, const TensorView& view) { results_.push_back({std::move(name), view, {}, {}}); }

  [[nodiscard]] Result<void> read(const ComparedResult& result, std::vector<std::byte>& memory) const {
    memory.resize(span_bytes(result.view));
    return copy_to_host(op_.facts().device, memory.data(), result.view.data, static_cast<std::int64_t>(memory.size()));
  }

  /// One run on results that hold NaN.
  Result<void> run_once(Trial& trial) {
    for (const ComparedResult& result : results_) {
      auto written = copy_from_host(op_.facts().device, result.view.data, result.poisoned.data(),
                                    static_cast<std::int64_t>(result.poisoned.size()));
      if (!written) return written;
    }
    if (auto queued = op_.run(trial.call); !queued) return queued;
    return synchronize(op_.facts().device, call_.stream);
  }

  Result<void> measure_default() {
    Trial& trial = *trials_.front();
    if (auto done = run_once(trial); !done) return done;
    for (ComparedResult& result : results_) {
      if (auto copied = read(result, result.reference); !copied) return copied;
    }
    if (auto measured = measure(trial); !measured) return measured;
    best_ = &trial;
    return {};
  }

  void try_candidate(Trial& trial) {
    TunedCandidate& candidate = trial.candidate;
    if (!trial.ready) return;
    if (out_of_time()) {
      candidate.outcome = TuneOutcome::out_of_time;
      candidate.note = "the time limit was over";
      return;
    }
    auto done = run_once(trial);
    if (done) {
      auto agrees = compare(candidate);
      if (!agrees) {
        done = agrees.error();
      } else if (!*agrees) {
        return;
      }
    }
    if (done) done = measure(trial);
    if (!done) {
      candidate.outcome = TuneOutcome::failed;
      candidate.note = first_line(done.error());
      return;
    }
    if (candidate.outcome == TuneOutcome::measured && candidate.milliseconds < best_->candidate.milliseconds) {
      best_ = &trial;
    }
  }

  /// Whether the results are those of the default tile; says so in the candidate if not.
  Result<bool> compare(TunedCandidate& candidate) const {
    std::vector<std::byte> memory;
    for (const ComparedResult& result : results_) {
      if (auto copied = read(result, memory); !copied) return copied.error();
      const auto wrong = disagreement(result.reference, memory, result.view.dtype, tolerance_of(call_.query.dtype));
      if (!wrong) continue;
      candidate.outcome = TuneOutcome::wrong;
      candidate.note = result.name + ": " + *wrong;
      return false;
    }
    return true;
  }

  Result<double> time_batch(Trial& trial, int runs) {
    auto taken = op_.backend()->measure(call_.stream, [&]() -> Result<void> {
      for (int i = 0; i < runs; ++i) {
        if (auto queued = op_.run(trial.call); !queued) return queued;
      }
      return {};
    });
    if (!taken) return taken.error();
    trial.candidate.runs += runs;
    return *taken / runs;
  }

  /// The median of batches; stops after the first if that is far above the best.
  Result<void> measure(Trial& trial) {
    TunedCandidate& candidate = trial.candidate;
    const auto first = time_batch(trial, 1);
    if (!first) return first.error();
    const double one = std::max(*first, least_milliseconds);
    const int runs = std::clamp(static_cast<int>(batch_milliseconds / one), 1, most_runs_a_batch);
    const int batches =
        std::clamp(static_cast<int>(options_.candidate_milliseconds / (one * runs)), fewest_batches, most_batches);
    std::vector<double> times;
    for (int batch = 0; batch < batches; ++batch) {
      const auto taken = time_batch(trial, runs);
      if (!taken) return taken.error();
      times.push_back(*taken);
      candidate.milliseconds = median(times);
      if (best_ == nullptr || std::min(*first, *taken) <= hopeless_factor * best_->candidate.milliseconds) continue;
      candidate.outcome = TuneOutcome::hopeless;
      candidate.note = "far slower than the best so far";
      return {};
    }
    candidate.outcome = TuneOutcome::measured;
    return {};
  }

  /// The fastest that is still ahead when it and the default are timed in turns, as clocks and other work on the device
  /// change in the course of a tuning; else the default.
  Result<void> choose_best() {
    Trial& standard = *trials_.front();
    std::vector<Trial*> ahead;
    for (const auto& trial : trials_) {
      const TunedCandidate& candidate = trial->candidate;
      const bool faster = candidate.milliseconds < standard.candidate.milliseconds;
      if (candidate.outcome == TuneOutcome::measured && faster) ahead.push_back(trial.get());
    }
    std::ranges::sort(ahead, {}, [](const Trial* trial) { return trial->candidate.milliseconds; });
    if (ahead.size() > most_finalists) ahead.resize(most_finalists);
    best_ = &standard;
    for (Trial* const trial : ahead) {
      const auto wins = is_ahead(*trial, standard);
      if (!wins) return wins.error();
      if (!*wins) continue;
      best_ = trial;
      break;
    }
    return {};
  }

  /// By the ratios of turns that follow each other, each of the two first in every second round; and by the medians, as
  /// what is reported of the best is to be less than of the default.
  Result<bool> is_ahead(Trial& trial, Trial& standard) {
    const int runs = std::clamp(
        static_cast<int>(finals_milliseconds / std::max(standard.candidate.milliseconds, least_milliseconds)), 1,
        most_runs_a_batch);
    std::vector<double> its_times, standard_times, gains;
    std::array turns{std::pair{&standard, &standard_times}, std::pair{&trial, &its_times}};
    for (int round = 0; round < rounds_of_finals; ++round) {
      for (auto [timed, times] : turns) {
        const auto taken = time_batch(*timed, runs);
        if (!taken) return taken.error();
        times->push_back(std::max(*taken, least_milliseconds));
      }
      gains.push_back(standard_times.back() / its_times.back());
      std::ranges::reverse(turns);
    }
    trial.candidate.milliseconds = median(its_times);
    standard.candidate.milliseconds = median(standard_times);
    return median(gains) >= least_gain && trial.candidate.milliseconds < standard.candidate.milliseconds;
  }

  void report_done(std::size_t i) const {
    if (!options_.progress) return;
    options_.progress(static_cast<int>(i) + 1, static_cast<int>(trials_.size()), trials_[i]->candidate);
  }

  Result<TuneReport> finish() {
    if (auto done = run_once(*best_); !done) return done.error();
    TuneReport report;
    for (const auto& trial : trials_) report.candidates.push_back(trial->candidate);
    const TunedCandidate& standard = report.candidates.front();
    kernel::KernelSpec best_spec = default_spec_;
    best_spec.tile = best_->candidate.resources.tile;
    TuningRecord& record = report.best;
    record.spec = best_spec.to_text();
    record.shape = shape_;
    record.device = op_.facts().name;
    record.processors = op_.facts().processors;
    if (const auto compiler = op_.backend()->compiler_identity()) record.compiler = *compiler;
    record.driver = op_.facts().driver;
    record.tile = best_spec.tile;
    record.milliseconds = best_->candidate.milliseconds;
    record.default_tile = default_spec_.tile;
    record.default_milliseconds = standard.milliseconds;
    record.candidates =
        static_cast<int>(std::ranges::count(report.candidates, TuneOutcome::measured, &TunedCandidate::outcome));
    record.date = date_now();
    return report;
  }

  attention::AttentionOp& op_;
  const AttentionCall& call_;
  const TuneOptions& options_;
  const Clock::time_point begun_ = Clock::now();
  kernel::KernelSpec default_spec_;
  AttentionShape shape_;
  std::vector<std::unique_ptr<Trial>> trials_;  ///< the default first
  Error default_failure_;
  std::shared_ptr<void> workspace_;
  std::vector<ComparedResult> results_;
  Trial* best_ = nullptr;
};

}  // namespace

std::vector<TileResources> tile_resources(const kernel::KernelSpec& spec, bool light_mask, const AttentionShape& shape,
                                          int processors) {
  std::vector<TileResources> tiles;
  for (const kernel::ModelledTile& modelled : kernel::modelled_tiles(spec, light_mask, {shape, processors})) {
    tiles.push_back(public_resources(modelled.tile, modelled.resources, modelled.cost));
  }
  return tiles;
}

Result<TuneReport> tune(attention::AttentionOp& op, const AttentionCall& call, const TuneOptions& options) {
  return Tuner(op, call, options).run();
}

}  // namespace flashspan::api
