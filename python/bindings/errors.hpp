// errors.hpp -- a failed Result becomes the Python exception of its code.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <string>
#include <utility>

#include "flashspan/core/error.hpp"

namespace flashspan::python {

/// Carries an Error out of a binding; translated to flashspan.FlashspanError or one of its kinds.
class Failure : public std::exception {
 public:
  explicit Failure(Error error) : error_(std::move(error)), message_(error_.message()) {}
  [[nodiscard]] const Error& error() const { return error_; }
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

 private:
  Error error_;
  std::string message_;
};

/// The value of `result`, or its Error thrown.
template <typename T>
T value_of(Result<T> result) {
  if (!result) throw Failure(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// The exception that flashspan/errors.py makes of `error`.
[[nodiscard]] nanobind::object exception_of(const Error& error);

void register_errors();

}  // namespace flashspan::python
