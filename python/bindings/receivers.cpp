#include "python/bindings/receivers.hpp"

#include <nanobind/stl/string.h>
#include <pthread.h>

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>

#include "python/bindings/errors.hpp"

namespace flashspan::python {

namespace {

/// The way from the library's threads into Python. A thread that asks for the lock on an interpreter that is ending is
/// ended by it, in the middle of C++, which ends the process by std::terminate().
class Border {
 public:
  /// Calls `call` with the lock on Python, unless the border is closed. `call` may come here again.
  template <typename Call>
  void cross(const Call& call) {
    const bool is_across = is_across_;
    std::shared_lock crossing(mutex_, std::defer_lock);
    if (!is_across) crossing.lock();
    if (!open_) return;
    is_across_ = true;
    {
      const nanobind::gil_scoped_acquire locked;
      call();
    }
    is_across_ = is_across;
  }
  /// Waits for those who are across. With the lock on Python, which they need to come back.
  void close() {
    const nanobind::gil_scoped_release released;
    const std::scoped_lock closing(mutex_);
    open_ = false;
  }

 private:
  static thread_local bool is_across_;
  std::shared_mutex mutex_;
  bool open_ = true;
};

thread_local bool Border::is_across_ = false;

/// Lives as long as threads may.
Border*& current_border() {
  static Border* current = new Border;
  return current;
}

/// A new one in the child of a fork, which has none of the threads that are across in its parent.
Border& border() {
  [[maybe_unused]] static const int handled = ::pthread_atfork(nullptr, nullptr, [] { current_border() = new Border; });
  return *current_border();
}

using Held = std::shared_ptr<nanobind::object>;

/// The last owner of the library may let go of the object without the lock on Python.
Held hold(nanobind::object object) {
  return {new nanobind::object(std::move(object)),
          [](nanobind::object* held) { border().cross([&] { delete held; }); }};
}

/// What is thrown is reported, and goes no further. `call` makes its own arguments, which needs the lock too.
template <typename Call>
void call_python(const char* what, const Call& call) {
  border().cross([&] {
    try {
      call();
    } catch (nanobind::python_error& error) {
      error.discard_as_unraisable(what);
    }
  });
}

nanobind::object error_of(const CompileEvent& event) {
  return event.error ? exception_of(*event.error) : nanobind::none();
}

}  // namespace

LogSink log_of(nanobind::object receiver) {
  return [held = hold(std::move(receiver))](LogLevel level, std::string_view text) {
    call_python("flashspan: the log's receiver",
                [&] { (*held)(static_cast<int>(level), nanobind::str(text.data(), text.size())); });
  };
}

CompileHooks hooks_of(nanobind::object before, nanobind::object after) {
  CompileHooks hooks;
  hooks.before = [held = hold(std::move(before))](const CompileEvent& event) {
    call_python("flashspan: before a compile", [&] { (*held)(event.spec, event.key); });
  };
  hooks.after = [held = hold(std::move(after))](const CompileEvent& event) {
    call_python("flashspan: after a compile",
                [&] { (*held)(event.spec, event.key, event.milliseconds, error_of(event)); });
  };
  return hooks;
}

void close_receivers() { border().close(); }

}  // namespace flashspan::python
