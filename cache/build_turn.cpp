// build_turn.cpp -- flock() cannot wait for a limited time, so it is tried again and again, ever more rarely.
#include "cache/build_turn.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

namespace flashspan::cache {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds shortest_pause{1};
constexpr milliseconds longest_pause{50};

}  // namespace

BuildTurn::BuildTurn(std::filesystem::path path, milliseconds longest_wait)
    : path_(std::move(path)), wait_(take(steady_clock::now() + longest_wait)) {
  if (wait_ != Wait::over) lock_.reset();
}

BuildTurn::Wait BuildTurn::take(steady_clock::time_point deadline) {
  milliseconds pause = shortest_pause;
  while (true) {
    if (!lock_) lock_.emplace(path_);
    const int error = lock_->try_to_take();
    if (error != 0 && error != EWOULDBLOCK) return Wait::impossible;
    if (error == 0) {
      if (lock_->is_at(path_)) return Wait::over;
      lock_.reset();  // who had the turn has removed the file; others may have made the next one already
    }
    if (steady_clock::now() >= deadline) return Wait::too_long;
    if (error == 0) continue;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, longest_pause);
  }
}

BuildTurn::~BuildTurn() {
  // Before the lock is let go, so that whoever takes it next sees that it is of no file any more.
  if (lock_ && lock_->is_at(path_)) ::unlink(path_.c_str());
}

void remove_old_turns(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::directory_iterator items(folder, error);
  for (; !error && items != std::filesystem::directory_iterator(); items.increment(error)) {
    FileLock lock(items->path());
    if (lock.try_to_take() == 0 && lock.is_at(items->path())) ::unlink(items->path().c_str());
  }
}

}  // namespace flashspan::cache
