// receivers.hpp -- Python functions that the library calls, from any of its threads.
#pragma once

#include <nanobind/nanobind.h>

#include "flashspan/core/compile_hooks.hpp"
#include "flashspan/core/log.hpp"

namespace flashspan::python {

/// A sink for the log that calls `receiver(level, text)`. Lines come from any thread, the compiler's among them.
[[nodiscard]] LogSink log_of(nanobind::object receiver);

/// Hooks that call `before(spec, key)` and `after(spec, key, milliseconds, error)`, error being an exception or None.
[[nodiscard]] CompileHooks hooks_of(nanobind::object before, nanobind::object after);

/// From now on no receiver is called any more. For the end of Python, which compiles in the background may outlive.
void close_receivers();

}  // namespace flashspan::python
