// provider_options.hpp -- what every KernelProvider of this process has in common.
#pragma once

#include <filesystem>
#include <optional>

#include "flashspan/core/log.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/attention/kernel_provider.hpp"

namespace flashspan::api {

/// Dumps, log and metrics; the caller adds the rest. `cache`: the folder of the cache, if there is one.
[[nodiscard]] attention::ProviderOptions provider_options(const Settings& settings,
                                                          const std::optional<std::filesystem::path>& cache,
                                                          const LogSink& log);

}  // namespace flashspan::api
