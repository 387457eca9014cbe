#include "runtime/attention/compile_queue.hpp"

#include <utility>

namespace flashspan::attention {

CompileQueue::~CompileQueue() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

CompileQueue::Ticket CompileQueue::add(Task task) {
  const std::scoped_lock lock(mutex_);
  const Ticket ticket = next_ticket_++;
  waiting_.push_back({ticket, std::move(task)});
  start_thread_if_needed();
  changed_.notify_one();
  return ticket;
}

void CompileQueue::give_up(Ticket ticket) {
  const std::scoped_lock lock(mutex_);
  if (running_.erase(ticket) == 0) return;
  start_thread_if_needed();
  changed_.notify_one();
}

void CompileQueue::start_thread_if_needed() {
  if (stopping_ || idle_ >= static_cast<int>(waiting_.size())) return;
  if (!may_start_(static_cast<int>(running_.size()) + idle_)) return;
  threads_.emplace_back([this] { work(); });
  ++idle_;  // counted here, so that the next add() knows of it
}

void CompileQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock,
                  [this] { return stopping_ || (!waiting_.empty() && may_start_(static_cast<int>(running_.size()))); });
    if (stopping_) return;
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
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
