#include "flashspan/core/error.hpp"

namespace flashspan {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::bad_argument:
      return "bad_argument";
    case ErrorCode::bad_expression:
      return "bad_expression";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::no_device:
      return "no_device";
    case ErrorCode::missing_component:
      return "missing_component";
    case ErrorCode::compile_failed:
      return "compile_failed";
    case ErrorCode::kernel_spills:
      return "kernel_spills";
    case ErrorCode::device_error:
      return "device_error";
    case ErrorCode::workspace_too_small:
      return "workspace_too_small";
    case ErrorCode::io_error:
      return "io_error";
    case ErrorCode::not_prepared:
      return "not_prepared";
    case ErrorCode::timed_out:
      return "timed_out";
  }
  return "unknown";
}

std::string Error::message() const {
  std::string text = argument;
  if (!got.empty()) text += (text.empty() ? "" : ": ") + ("got " + got);
  if (!takes.empty()) text += (text.empty() ? "" : "; ") + ("takes " + takes);
  if (!detail.empty()) text += "\n" + detail;
  return text;
}

}  // namespace flashspan
