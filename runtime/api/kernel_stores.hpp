// kernel_stores.hpp -- opens the cache over a folder.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "cache/kernel_cache.hpp"
#include "flashspan/core/log.hpp"

namespace flashspan::api {

/// Memory over the folder, if there is one, over the read-only layers, over the shared store, if there is one.
[[nodiscard]] std::shared_ptr<cache::KernelCache> open_kernel_cache(const std::optional<std::filesystem::path>& folder,
                                                                    const std::vector<std::filesystem::path>& layers,
                                                                    const LogSink& log,
                                                                    std::unique_ptr<cache::SharedStore> shared);

}  // namespace flashspan::api
