#include "codegen/kernel/arch_limits.hpp"

#include <algorithm>
#include <array>
#include <string>

namespace flashspan::kernel {
namespace {

constexpr std::int64_t kibibyte = 1024;

constexpr std::array table{
    ArchLimits{80, 164 * kibibyte, 163 * kibibyte, 32, 64},  ArchLimits{86, 100 * kibibyte, 99 * kibibyte, 16, 48},
    ArchLimits{87, 164 * kibibyte, 163 * kibibyte, 16, 48},  ArchLimits{89, 100 * kibibyte, 99 * kibibyte, 24, 48},
    ArchLimits{90, 228 * kibibyte, 227 * kibibyte, 32, 64},  ArchLimits{100, 228 * kibibyte, 227 * kibibyte, 32, 64},
    ArchLimits{101, 228 * kibibyte, 227 * kibibyte, 32, 64}, ArchLimits{103, 228 * kibibyte, 227 * kibibyte, 32, 64},
    ArchLimits{110, 228 * kibibyte, 227 * kibibyte, 24, 48}, ArchLimits{120, 100 * kibibyte, 99 * kibibyte, 24, 48},
    ArchLimits{121, 100 * kibibyte, 99 * kibibyte, 24, 48}};

}  // namespace

Result<void> check_arch(Arch arch) {
  if (arch.number >= oldest_arch) return {};
  return Error{ErrorCode::unsupported, "arch", to_string(arch), "sm_" + std::to_string(oldest_arch) + " or later", ""};
}

ArchLimits arch_limits(Arch arch) {
  const auto* const found = std::ranges::find(table, arch.number, &ArchLimits::number);
  if (found != table.end()) return *found;
  ArchLimits smallest = table.front();
  smallest.number = arch.number;
  for (const ArchLimits& limits : table) {
    smallest.shared_bytes = std::min(smallest.shared_bytes, limits.shared_bytes);
    smallest.shared_bytes_per_block = std::min(smallest.shared_bytes_per_block, limits.shared_bytes_per_block);
    smallest.blocks = std::min(smallest.blocks, limits.blocks);
    smallest.warps = std::min(smallest.warps, limits.warps);
  }
  return smallest;
}

int register_limit(int threads) {
  const int shared_out = registers_per_multiprocessor / std::max(threads, 1) / register_granule * register_granule;
  return std::min(most_registers_per_thread, shared_out);
}

int resident_blocks(const ArchLimits& limits, int threads, int registers, std::int64_t shared_bytes) {
  if (threads > most_threads_per_block || shared_bytes > limits.shared_bytes_per_block) return 0;
  const int warps = (threads + threads_per_warp - 1) / threads_per_warp;
  const int of_thread = (registers + register_granule - 1) / register_granule * register_granule;
  const int by_registers = registers_per_multiprocessor / std::max(of_thread * warps * threads_per_warp, 1);
  const auto by_memory = static_cast<int>(limits.shared_bytes / (shared_bytes + reserved_shared_bytes));
  return std::min({limits.blocks, limits.warps / warps, by_registers, by_memory});
}

}  // namespace flashspan::kernel
