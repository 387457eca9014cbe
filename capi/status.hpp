// status.hpp -- the border between C and C++: results and exceptions become a status and this thread's message.
#pragma once

#include <exception>
#include <string>

#include "flashspan/core/error.hpp"
#include "flashspan/flashspan.h"

namespace flashspan::capi {

[[nodiscard]] constexpr flashspan_status status_of(ErrorCode code) noexcept {
  return static_cast<flashspan_status>(static_cast<int>(code) + 1);
}

/// Keeps the message for flashspan_last_error(), and returns the error's status.
flashspan_status failed(const Error& error) noexcept;
flashspan_status failed_with(const char* message) noexcept;

/// Runs `body`, which returns a Result<void>, so that nothing but a status leaves it.
template <typename Body>
flashspan_status guarded(const Body& body) noexcept {
  try {
    const Result<void> done = body();
    return done ? FLASHSPAN_OK : failed(done.error());
  } catch (const std::exception& failure) {
    return failed_with(failure.what());
  } catch (...) {
    return failed_with("an exception of an unknown type");
  }
}

[[nodiscard]] inline Error null_argument(const char* argument) {
  return Error{ErrorCode::bad_argument, argument, "NULL", "an address", ""};
}

}  // namespace flashspan::capi
