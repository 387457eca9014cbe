// worker_process.cpp -- pipes and posix_spawn around cache_worker.
#include "tests/cache/worker_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace flashspan::cache {

WorkerProcess::WorkerProcess(const std::string& task, const std::filesystem::path& directory, unsigned long seed,
                             const std::vector<std::string>& environment) {
  std::array<int, 2> to_worker{};
  std::array<int, 2> from_worker{};
  // Close-on-exec: no worker may hold another's pipe open.
  if (::pipe2(to_worker.data(), O_CLOEXEC) != 0 || ::pipe2(from_worker.data(), O_CLOEXEC) != 0) std::abort();
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, to_worker[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, from_worker[1], STDOUT_FILENO);

  std::vector<std::string> arguments{FLASHSPAN_CACHE_WORKER, task, directory.string(), std::to_string(seed)};
  std::vector<char*> argument_pointers;
  for (std::string& argument : arguments) argument_pointers.push_back(argument.data());
  argument_pointers.push_back(nullptr);
  std::vector<std::string> added = environment;
  std::vector<char*> environment_pointers;
  for (std::string& variable : added) environment_pointers.push_back(variable.data());
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view inherited(*variable);
    const std::string_view name = inherited.substr(0, inherited.find('=') + 1);
    const auto replaces = [name](const std::string& other) { return other.starts_with(name); };
    if (std::none_of(added.begin(), added.end(), replaces)) environment_pointers.push_back(*variable);
  }
  environment_pointers.push_back(nullptr);

  if (::posix_spawn(&process_, FLASHSPAN_CACHE_WORKER, &actions, nullptr, argument_pointers.data(),
                    environment_pointers.data()) != 0) {
    process_ = -1;
  }
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(to_worker[0]);
  ::close(from_worker[1]);
  input_ = to_worker[1];
  standard_output_ = from_worker[0];
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : process_(std::exchange(other.process_, -1)),
      input_(std::exchange(other.input_, -1)),
      standard_output_(std::exchange(other.standard_output_, -1)),
      output_(std::move(other.output_)) {}

WorkerProcess::~WorkerProcess() {
  kill();
  wait();
}

void WorkerProcess::close_input() {
  if (input_ >= 0) ::close(input_);
  input_ = -1;
}

void WorkerProcess::kill() {
  if (process_ > 0) ::kill(process_, SIGKILL);
}

bool WorkerProcess::wait_for_output() {
  char byte = 0;
  if (::read(standard_output_, &byte, 1) != 1) return false;
  output_ += byte;
  return true;
}

int WorkerProcess::wait() {
  close_input();
  if (standard_output_ >= 0) {
    std::array<char, 256> buffer{};
    ssize_t count = 0;
    while ((count = ::read(standard_output_, buffer.data(), buffer.size())) > 0) {
      output_.append(buffer.data(), static_cast<std::size_t>(count));
    }
    ::close(standard_output_);
    standard_output_ = -1;
  }
  if (process_ <= 0) return -1;
  int status = 0;
  ::waitpid(std::exchange(process_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace flashspan::cache
