#include "capi/status.hpp"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>

namespace flashspan::capi {
namespace {

std::string& message() {
  thread_local std::string text;
  return text;
}

constexpr std::array codes{ErrorCode::bad_argument,  ErrorCode::bad_expression,    ErrorCode::unsupported,
                           ErrorCode::no_device,     ErrorCode::missing_component, ErrorCode::compile_failed,
                           ErrorCode::kernel_spills, ErrorCode::device_error,      ErrorCode::workspace_too_small,
                           ErrorCode::io_error,      ErrorCode::not_prepared,      ErrorCode::timed_out};
static_assert(static_cast<int>(ErrorCode::timed_out) + 1 == FLASHSPAN_TIMED_OUT && codes.size() == FLASHSPAN_TIMED_OUT);

}  // namespace

flashspan_status failed(const Error& error) noexcept {
  try {
    message() = error.message();
  } catch (const std::exception&) {
    return failed_with("out of memory");
  }
  return status_of(error.code);
}

flashspan_status failed_with(const char* text) noexcept {
  try {
    message() = text;
  } catch (const std::exception&) {
    message().clear();
  }
  return FLASHSPAN_INTERNAL;
}

}  // namespace flashspan::capi

const char* flashspan_last_error() { return flashspan::capi::message().c_str(); }

const char* flashspan_status_name(flashspan_status status) {
  const int number = status;
  if (number == FLASHSPAN_OK) return "ok";
  if (number == FLASHSPAN_INTERNAL) return "internal";
  if (number < 0 || number > static_cast<int>(flashspan::capi::codes.size())) return "unknown";
  return flashspan::to_string(flashspan::capi::codes[static_cast<std::size_t>(number) - 1]);
}

const char* flashspan_version() { return FLASHSPAN_VERSION; }

void flashspan_free_text(char* text) { std::free(text); }
