#include "flashspan/core/miss_policy.hpp"

namespace flashspan {

const char* to_string(MissPolicy policy) {
  switch (policy) {
    case MissPolicy::compile:
      return "compile";
    case MissPolicy::warn:
      return "warn";
    case MissPolicy::refuse:
      return "refuse";
    case MissPolicy::interpret:
      return "interpret";
  }
  return "unknown";
}

std::optional<MissPolicy> miss_policy_from_string(std::string_view text) {
  for (MissPolicy policy : {MissPolicy::compile, MissPolicy::warn, MissPolicy::refuse, MissPolicy::interpret}) {
    if (text == to_string(policy)) return policy;
  }
  return std::nullopt;
}

}  // namespace flashspan
