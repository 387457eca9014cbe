// miss_policy.hpp -- MissPolicy: what becomes of a call whose kernel would have to be compiled first.
#pragma once

#include <optional>
#include <string_view>

#pragma GCC visibility push(default)
namespace flashspan {

/// A miss is a call whose kernel is neither on the device nor in a cache, in memory or on disk.
enum class MissPolicy {
  compile,    ///< the call compiles it
  warn,       ///< the call compiles it, and a warning says so
  refuse,     ///< the call is an error, not_prepared
  interpret,  ///< the call takes a kernel that interprets its mask, and later calls their own, which compiles meanwhile
};

[[nodiscard]] const char* to_string(MissPolicy policy);
[[nodiscard]] std::optional<MissPolicy> miss_policy_from_string(std::string_view text);

}  // namespace flashspan
#pragma GCC visibility pop
