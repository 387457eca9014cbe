// compile_jobs.hpp -- CompileJobs: one compile per spec however many ask, those that somebody waits for first.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/kernel/kernel_spec.hpp"
#include "runtime/attention/compile_queue.hpp"

namespace flashspan::service {

/// Thread-safe.
class CompileJobs {
 public:
  using Clock = std::chrono::steady_clock;
  using Work = std::function<void()>;  ///< must not throw

  /// What became of a wait.
  enum class Ended {
    done,
    timed_out,  ///< the job goes on
    full,       ///< there are too many jobs; this one was not taken
    stopped,
  };

  /// `may_start`: as CompileQueue. `longest`: a job that runs longer gives its place in the queue away. `most`: jobs
  /// that are not done.
  CompileJobs(std::function<bool(int running)> may_start, Clock::duration longest, std::size_t most)
      : longest_(longest), most_(most), queue_(std::move(may_start)) {}
  /// Waits for the jobs that run.
  ~CompileJobs() = default;
  CompileJobs(const CompileJobs&) = delete;
  CompileJobs& operator=(const CompileJobs&) = delete;

  /// Does `work`, unless a job of this spec is under way, and waits for it.
  Ended run(const kernel::KernelSpec& spec, Work work, Clock::time_point deadline);
  /// The same, some time. False if there are too many jobs.
  bool run_ahead(const kernel::KernelSpec& spec, Work work);
  /// Ends every wait, and refuses what comes.
  void stop();

  struct Running {
    std::string spec;  ///< one line
    double seconds = 0;
    int waiting = 0;  ///< who waits for it
  };
  struct Status {
    std::vector<Running> running;
    std::size_t queued = 0;        ///< that somebody waits for
    std::size_t queued_ahead = 0;  ///< that nobody waits for
    std::size_t done = 0;
  };
  [[nodiscard]] Status status();

 private:
  struct Job {
    attention::CompileQueue::Ticket ticket = 0;
    Clock::time_point started{};  ///< the epoch: not yet
    int waiting = 0;
    bool is_done = false;
    bool gave_place = false;
    bool ahead = false;
  };
  using JobPointer = std::shared_ptr<Job>;

  /// The job of this spec, new or not; null if there are too many. `mutex_` is held.
  [[nodiscard]] JobPointer job_of(const kernel::KernelSpec& spec, Work work, attention::Urgency urgency);
  void work_on(const kernel::KernelSpec& spec, Job& job, const Work& work);
  /// `mutex_` is held.
  void give_place_if_too_long(Job& job);

  Clock::duration longest_;
  std::size_t most_;
  std::mutex mutex_;  // guards what follows, but not the queue
  std::condition_variable changed_;
  std::unordered_map<kernel::KernelSpec, JobPointer, kernel::KernelSpecHash> jobs_;
  std::size_t done_ = 0;
  bool stopping_ = false;
  attention::CompileQueue queue_;  // its tasks end before the others go
};

}  // namespace flashspan::service
