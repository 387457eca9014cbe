#include "runtime/attention/compile_queue.hpp"

#include <algorithm>
#include <utility>

namespace flashspan::attention {

CompileQueue::~CompileQueue() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    waiting_.clear();
    ahead_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

CompileQueue::Ticket CompileQueue::add(Task task, Urgency urgency) {
  const std::scoped_lock lock(mutex_);
  const Ticket ticket = next_ticket_++;
  (urgency == Urgency::waited_for ? waiting_ : ahead_).push_back({ticket, std::move(task)});
  start_thread_if_needed();
  changed_.notify_one();
  return ticket;
}

void CompileQueue::promote(Ticket ticket) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(ahead_, ticket, &Waiting::ticket);
  if (found == ahead_.end()) return;
  waiting_.push_back(std::move(*found));
  ahead_.erase(found);
}

CompileQueue::Waiting CompileQueue::take_next() {
  std::deque<Waiting>& from = waiting_.empty() ? ahead_ : waiting_;
  Waiting next = std::move(from.front());
  from.pop_front();
  return next;
}

void CompileQueue::give_up(Ticket ticket) {
  const std::scoped_lock lock(mutex_);
  if (running_.erase(ticket) == 0) return;
  start_thread_if_needed();
  changed_.notify_one();
}

void CompileQueue::start_thread_if_needed() {
  if (stopping_ || idle_ >= static_cast<int>(count())) return;
  if (!may_start_(static_cast<int>(running_.size()) + idle_)) return;
  threads_.emplace_back([this] { work(); });
  ++idle_;  // counted here, so that the next add() knows of it
}

void CompileQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock,
                  [this] { return stopping_ || (count() != 0 && may_start_(static_cast<int>(running_.size()))); });
    if (stopping_) return;
    Waiting next = take_next();
    --idle_;
    running_.insert(next.ticket);
    lock.unlock();
    next.task();
    next.task = nullptr;  // frees what the task holds before others hear that it is done
    lock.lock();
    // One that was given up has been replaced by another thread.
    if (running_.erase(next.ticket) == 0) return;
    ++idle_;
    start_thread_if_needed();  // there may be more memory now
    changed_.notify_one();
  }
}

}  // namespace flashspan::attention
