// error.hpp -- the one way every part of Flashspan reports failure: a typed Error inside a Result.
#pragma once

#include <string>
#include <utility>
#include <variant>

#pragma GCC visibility push(default)
namespace flashspan {

enum class ErrorCode {
  bad_argument,         ///< an argument's value, shape or dtype is not one the call takes
  bad_expression,       ///< mask or score text does not parse or type-check; `detail` marks the column
  unsupported,          ///< a valid request that this build, device or version cannot serve
  no_device,            ///< no driver, or no such device
  missing_component,    ///< NVRTC, the CPU plug-in or another optional part could not be opened
  compile_failed,       ///< the device compiler refused the generated source
  kernel_spills,        ///< the kernel compiled, but does not fit its registers
  device_error,         ///< a driver call failed
  workspace_too_small,  ///< the caller's workspace is smaller than the query said
  io_error,             ///< a file could not be read or written
  not_prepared,         ///< the call's kernel would have to be compiled, and its Attention is frozen
  timed_out,            ///< not done within the time that the caller gave it
};

/// Lower-case name of the code, as it stands in JSON output ("bad_argument").
[[nodiscard]] const char* to_string(ErrorCode code);

/// What failed, in the user's words: which argument, what it got, what it takes.
struct Error {
  ErrorCode code = ErrorCode::bad_argument;
  std::string argument;  ///< name of the argument or component at fault
  std::string got;       ///< the offending value
  std::string takes;     ///< what would have been accepted
  std::string detail;    ///< optional further lines: caret under the column, compile log, dump path

  /// One line "argument: got X; takes Y", followed by `detail` on its own lines when there is any.
  [[nodiscard]] std::string message() const;
};

/// A value of type T or an Error. Check with `if (!result)`, then use `*result` or `result.error()`.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  [[nodiscard]] T& value() & { return std::get<0>(state_); }
  [[nodiscard]] const T& value() const& { return std::get<0>(state_); }
  [[nodiscard]] T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  [[nodiscard]] const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

/// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  [[nodiscard]] const Error& error() const { return std::get<Error>(state_); }

 private:
  std::variant<std::monostate, Error> state_;
};

}  // namespace flashspan
#pragma GCC visibility pop
