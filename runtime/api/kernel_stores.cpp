// kernel_stores.cpp -- the cache of a process.
#include "runtime/api/kernel_stores.hpp"

#include <cstddef>
#include <utility>

namespace flashspan::api {

namespace {

/// A module is about 100 KB, so this holds some thousand of them; those on a device are kept by the provider.
constexpr std::size_t memory_limit_bytes = std::size_t{128} << 20;

}  // namespace

std::shared_ptr<cache::KernelCache> open_kernel_cache(const std::optional<std::filesystem::path>& folder,
                                                      const std::vector<std::filesystem::path>& layers,
                                                      const LogSink& log, std::unique_ptr<cache::SharedStore> shared) {
  std::optional<cache::DiskStore> disk;
  if (folder) disk.emplace(*folder, log);
  return std::make_shared<cache::KernelCache>(std::move(disk), memory_limit_bytes, log, cache::open_layers(layers, log),
                                              std::move(shared));
}

}  // namespace flashspan::api
