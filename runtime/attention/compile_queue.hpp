// compile_queue.hpp -- CompileQueue: tasks that compile, on threads of their own, as many at a time as are let.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

namespace flashspan::attention {

/// Whether somebody waits for a task.
enum class Urgency {
  waited_for,
  ahead,  ///< nobody yet
};

/// Thread-safe. No thread runs before the first task.
class CompileQueue {
 public:
  using Task = std::function<void()>;  ///< must not throw
  using Ticket = std::uint64_t;

  /// `may_start(running)` says whether a task may start beside `running` others; true for 0.
  explicit CompileQueue(std::function<bool(int running)> may_start) : may_start_(std::move(may_start)) {}
  /// Drops the tasks that have not begun, and waits for the others: a compiler cannot be stopped half-way.
  ~CompileQueue();
  CompileQueue(const CompileQueue&) = delete;
  CompileQueue& operator=(const CompileQueue&) = delete;

  /// Tasks that are waited for start before all others, and else in the order in which they came.
  Ticket add(Task task, Urgency urgency = Urgency::waited_for);
  /// Somebody waits for the task now. One that has begun goes on as it was.
  void promote(Ticket ticket);
  /// The task counts as running no longer, though it goes on: those that wait behind it get its place.
  void give_up(Ticket ticket);

 private:
  struct Waiting {
    Ticket ticket;
    Task task;
  };
  /// `mutex_` is held.
  void start_thread_if_needed();
  [[nodiscard]] std::size_t count() const { return waiting_.size() + ahead_.size(); }
  [[nodiscard]] Waiting take_next();
  void work();

  std::function<bool(int running)> may_start_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;         // for a thread, and somebody for them
  std::deque<Waiting> ahead_;           // for a thread
  std::unordered_set<Ticket> running_;  // without those given up
  std::vector<std::thread> threads_;
  int idle_ = 0;  // threads that wait for a task
  Ticket next_ticket_ = 0;
  bool stopping_ = false;
};

}  // namespace flashspan::attention
