#include "runtime/attention/prepare_all.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/attention/user_text.hpp"

namespace flashspan::attention {
namespace {

using Clock = std::chrono::steady_clock;
using Provided = Result<KernelProvider::Provided>;

/// One kernel, and the calls that take it.
struct Job {
  kernel::KernelSpec spec;
  OwnedText text;
  std::vector<std::size_t> calls;
  CompileQueue::Ticket ticket = 0;
  bool reported = false;
  std::optional<Clock::time_point> started;
  std::optional<Provided> result;
};

/// Outlives the wait as long as a task goes on.
struct Jobs {
  std::mutex mutex;  // guards `started` and `result` of all
  std::condition_variable changed;
  std::vector<std::unique_ptr<Job>> all;
};

Provided get_without_exceptions(KernelProvider& kernels, const Job& job) {
  try {
    return kernels.get(job.spec, job.text.view());
  } catch (const std::exception& failure) {
    return Error{ErrorCode::compile_failed, "kernel", failure.what(), "a build without exceptions", ""};
  }
}

void run_job(Jobs& jobs, Job& job, KernelProvider& kernels) {
  {
    const std::scoped_lock lock(jobs.mutex);
    job.started = Clock::now();
  }
  jobs.changed.notify_all();
  auto result = get_without_exceptions(kernels, job);
  const std::scoped_lock lock(jobs.mutex);
  job.result.emplace(std::move(result));
  jobs.changed.notify_all();
}

Error timed_out(const Job& job, double seconds) {
  return Error{ErrorCode::timed_out, "kernel",
               job.spec.summary() + ", still compiling after " + std::to_string(seconds) + " seconds",
               "more time: the compile goes on, and a later call finds its kernel", ""};
}

/// The thread that waits, and what it tells its caller.
class Waiter {
 public:
  Waiter(Jobs& jobs, CompileQueue& queue, const PrepareWait& wait) : jobs_(jobs), queue_(queue), wait_(wait) {}

  void wait_for_all() {
    for (std::size_t left = jobs_.all.size(); left > 0; --left) {
      Job& job = next();
      const Provided result = job.result ? *job.result : Provided(timed_out(job, wait_.time_out_seconds));
      for (const std::size_t call : job.calls) wait_.done(call, result);
    }
  }

 private:
  /// A job that is done or has timed out, and was not reported before.
  Job& next() {
    std::unique_lock lock(jobs_.mutex);
    while (true) {
      std::optional<Clock::time_point> first_deadline;
      for (const auto& job : jobs_.all) {
        if (job->reported) continue;
        const auto deadline = deadline_of(*job);
        if (job->result || (deadline && *deadline <= Clock::now())) return take(*job);
        if (deadline) first_deadline = std::min(first_deadline.value_or(*deadline), *deadline);
      }
      if (first_deadline) {
        jobs_.changed.wait_until(lock, *first_deadline);
      } else {
        jobs_.changed.wait(lock);
      }
    }
  }

  Job& take(Job& job) {
    job.reported = true;
    if (!job.result) queue_.give_up(job.ticket);
    return job;
  }

  [[nodiscard]] std::optional<Clock::time_point> deadline_of(const Job& job) const {
    if (!job.started || wait_.time_out_seconds <= 0) return std::nullopt;
    return *job.started +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait_.time_out_seconds));
  }

  Jobs& jobs_;
  CompileQueue& queue_;
  const PrepareWait& wait_;
};

}  // namespace

void prepare_all(const AttentionOp& op, CompileQueue& queue, const std::vector<AttentionCall>& calls,
                 const PrepareWait& wait) {
  const auto jobs = std::make_shared<Jobs>();
  std::unordered_map<kernel::KernelSpec, Job*, kernel::KernelSpecHash> by_spec;
  for (std::size_t call = 0; call < calls.size(); ++call) {
    auto spec = op.spec_of(calls[call]);
    if (!spec) {
      wait.done(call, spec.error());
      continue;
    }
    Job*& job = by_spec[*spec];
    if (job == nullptr) {
      jobs->all.push_back(std::make_unique<Job>(
          Job{*std::move(spec), OwnedText(user_text(calls[call])), {}, 0, false, std::nullopt, std::nullopt}));
      job = jobs->all.back().get();
    }
    job->calls.push_back(call);
  }
  std::vector<WantedKernel> wanted;
  for (const auto& job : jobs->all) wanted.push_back({&job->spec, job->text.view()});
  if (wanted.size() > 1) op.kernels()->prefetch(wanted);
  for (const auto& job : jobs->all) {
    job->ticket = queue.add([jobs, &job = *job, kernels = op.kernels()] { run_job(*jobs, job, *kernels); });
  }
  Waiter(*jobs, queue, wait).wait_for_all();
}

}  // namespace flashspan::attention
