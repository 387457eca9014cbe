// worker_process.hpp -- runs cache_worker as a process of its own.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace flashspan::cache {

class WorkerProcess {
 public:
  /// Starts "cache_worker task directory seed" with `environment` ("NAME=value") added to ours.
  WorkerProcess(const std::string& task, const std::filesystem::path& directory, unsigned long seed = 0,
                const std::vector<std::string>& environment = {});
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  /// Kills the process if it still runs.
  ~WorkerProcess();

  /// Closes the worker's standard input: the sign to start, or to stop.
  void close_input();
  void kill();
  /// Waits for the first byte that the worker prints: the sign that it is where it should be. False: it ended before.
  bool wait_for_output();
  /// Waits. The exit code, or minus the signal that ended it. Closes the input first.
  int wait();
  /// What it printed; valid after wait().
  [[nodiscard]] const std::string& output() const { return output_; }

 private:
  pid_t process_ = -1;
  int input_ = -1;
  int standard_output_ = -1;
  std::string output_;
};

inline constexpr int not_possible_here = 77;

}  // namespace flashspan::cache
