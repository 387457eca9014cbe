// compile_hooks.hpp -- CompileHooks: functions of the caller's that are told of every compile.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "flashspan/core/error.hpp"

#pragma GCC visibility push(default)
namespace flashspan {

/// One compile, in this process; kernels that a cache or a compile service has are none.
struct CompileEvent {
  std::string spec;  ///< one line
  std::string key;   ///< 32 hexadecimal digits
  /// After the compile only.
  double milliseconds = 0;
  std::optional<Error> error;
};

/// Called by the thread that compiles, so from several at a time. They must not throw, nor call the Attention that they
/// are of. Each `before` is followed by one `after` of the same key.
struct CompileHooks {
  std::function<void(const CompileEvent&)> before;
  std::function<void(const CompileEvent&)> after;
};

}  // namespace flashspan
#pragma GCC visibility pop
