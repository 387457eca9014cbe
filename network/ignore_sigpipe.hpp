// ignore_sigpipe.hpp -- IgnoreSigpipe: while it lives, writing to a connection that the other side has closed is an
// error of that call and not a signal that ends the process. (hiredis writes so; a library may not change what the
// process does about signals.)
#pragma once

#include <csignal>
#include <ctime>

namespace flashspan::network {

class IgnoreSigpipe {
 public:
  IgnoreSigpipe() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~IgnoreSigpipe() {
    if (!was_pending_) {
      constexpr timespec at_once{0, 0};
      while (sigtimedwait(&sigpipe_, nullptr, &at_once) > 0) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  IgnoreSigpipe(const IgnoreSigpipe&) = delete;
  IgnoreSigpipe& operator=(const IgnoreSigpipe&) = delete;

 private:
  sigset_t sigpipe_{}, before_{};
  bool was_pending_ = false;
};

}  // namespace flashspan::network
