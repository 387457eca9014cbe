#include "python/bindings/receivers.hpp"

#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "python/bindings/errors.hpp"

namespace flashspan::python {

namespace {

using Held = std::shared_ptr<nanobind::object>;

/// The last owner of the library may let go of the object without the lock on Python.
Held hold(nanobind::object object) {
  return {new nanobind::object(std::move(object)), [](nanobind::object* held) {
            if (!nanobind::is_alive()) return;
            const nanobind::gil_scoped_acquire locked;
            delete held;
          }};
}

/// Calls with the lock on Python; what is thrown is reported, and goes no further. `call` makes its own arguments,
/// which needs the lock too.
template <typename Call>
void call_python(const char* what, const Call& call) {
  if (!nanobind::is_alive()) return;
  const nanobind::gil_scoped_acquire locked;
  try {
    call();
  } catch (nanobind::python_error& error) {
    error.discard_as_unraisable(what);
  }
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

}  // namespace flashspan::python
