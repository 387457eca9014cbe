// log.hpp -- where a layer sends a line of text for people; which sink prints it is settled in runtime/api.
#pragma once

#include <functional>
#include <string_view>

#pragma GCC visibility push(default)
namespace flashspan {

enum class LogLevel { debug, info, warning, error };
using LogSink = std::function<void(LogLevel, std::string_view)>;

}  // namespace flashspan
#pragma GCC visibility pop
