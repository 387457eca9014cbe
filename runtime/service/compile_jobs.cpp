#include "runtime/service/compile_jobs.hpp"

#include <algorithm>
#include <utility>

namespace flashspan::service {

using attention::Urgency;

CompileJobs::Ended CompileJobs::run(const kernel::KernelSpec& spec, Work work, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  if (stopping_) return Ended::stopped;
  const JobPointer job = job_of(spec, std::move(work), Urgency::waited_for);
  if (job == nullptr) return Ended::full;
  ++job->waiting;
  while (!job->is_done && !stopping_ && Clock::now() < deadline) {
    const bool runs = job->started != Clock::time_point{} && !job->gave_place;
    changed_.wait_until(lock, runs ? std::min(deadline, job->started + longest_) : deadline);
    give_place_if_too_long(*job);
  }
  --job->waiting;
  if (job->is_done) return Ended::done;
  return stopping_ ? Ended::stopped : Ended::timed_out;
}

bool CompileJobs::run_ahead(const kernel::KernelSpec& spec, Work work) {
  const std::scoped_lock lock(mutex_);
  return !stopping_ && job_of(spec, std::move(work), Urgency::ahead) != nullptr;
}

CompileJobs::JobPointer CompileJobs::job_of(const kernel::KernelSpec& spec, Work work, Urgency urgency) {
  if (const auto found = jobs_.find(spec); found != jobs_.end()) {
    Job& job = *found->second;
    if (urgency == Urgency::waited_for && std::exchange(job.ahead, false)) queue_.promote(job.ticket);
    return found->second;
  }
  if (jobs_.size() >= most_) return nullptr;
  auto job = std::make_shared<Job>();
  job->ahead = urgency == Urgency::ahead;
  jobs_.emplace(spec, job);
  job->ticket = queue_.add([this, spec, job, work = std::move(work)] { work_on(spec, *job, work); }, urgency);
  return job;
}

void CompileJobs::work_on(const kernel::KernelSpec& spec, Job& job, const Work& work) {
  {
    const std::scoped_lock lock(mutex_);
    job.started = Clock::now();
  }
  changed_.notify_all();
  work();
  {
    const std::scoped_lock lock(mutex_);
    job.is_done = true;
    ++done_;
    jobs_.erase(spec);
  }
  changed_.notify_all();
}

void CompileJobs::give_place_if_too_long(Job& job) {
  if (job.started == Clock::time_point{} || job.gave_place || Clock::now() < job.started + longest_) return;
  job.gave_place = true;
  queue_.give_up(job.ticket);
}

void CompileJobs::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

CompileJobs::Status CompileJobs::status() {
  const std::scoped_lock lock(mutex_);
  Status status;
  status.done = done_;
  for (const auto& [spec, job] : jobs_) {
    if (job->started != Clock::time_point{}) {
      const double seconds = std::chrono::duration<double>(Clock::now() - job->started).count();
      status.running.push_back({spec.summary(), seconds, job->waiting});
    } else {
      ++(job->ahead ? status.queued_ahead : status.queued);
    }
  }
  std::ranges::sort(status.running, std::ranges::greater(), &Running::seconds);
  return status;
}

}  // namespace flashspan::service
