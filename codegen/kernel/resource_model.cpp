#include "codegen/kernel/resource_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <tuple>

#include "codegen/kernel/arch_limits.hpp"
#include "codegen/kernel/tile_config.hpp"

namespace flashspan::kernel {
namespace {

constexpr int warpgroup_warps = 4;

/// Warps of 16 query rows each (templates/attention/forward_mma.cuh). Of 8 columns a word of bits has 32 at most.
std::vector<TileConfig> mma_forward_tiles() {
  std::vector<TileConfig> tiles;
  for (const int warps : {4, 8}) {
    for (const int block_n : {32, 64, 96, 128}) {
      for (const int stages : {1, 2, 3}) tiles.push_back({warps * rows_per_warp, block_n, warps, stages});
    }
  }
  return tiles;
}

/// Square tiles, in one or two groups of result columns (templates/attention/backward_mma.cuh).
std::vector<TileConfig> mma_backward_tiles() {
  std::vector<TileConfig> tiles;
  for (const int rows : {32, 64, 128}) {
    for (const int groups : {1, 2}) tiles.push_back({rows, rows, rows / rows_per_warp * groups, 1});
  }
  return tiles;
}

/// Warpgroups of 64 query rows each (templates/attention/forward_hopper.cuh).
std::vector<TileConfig> hopper_forward_tiles(const KernelSpec& spec) {
  std::vector<TileConfig> tiles;
  for (const int warpgroups : {2, 3}) {
    if (spec.split_rows && warpgroups * 64 != split_block_m) continue;
    for (const int block_n : {48, 64, 80, 96, 112, 128}) {
      for (const int stages : {2, 3}) {
        tiles.push_back({warpgroups * 64, block_n, warpgroups * warpgroup_warps, stages});
      }
    }
  }
  return tiles;
}

/// Two warpgroups that share 128 keys, or 64 where they split roles (templates/attention/backward_keys.cuh).
std::vector<TileConfig> hopper_backward_tiles(const KernelSpec& spec) {
  const int keys = splits_roles(spec) ? 64 : 128;
  std::vector<TileConfig> tiles;
  for (const int queries : {64, 128}) {
    if (spec.two_passes && queries != 128) continue;
    // A share of dQ of 128 queries is one panel of 64 columns; roles have no registers for it.
    if (!spec.two_passes && queries == 128 && (spec.head_dim_qk > 64 || splits_roles(spec))) continue;
    for (const int stages : {2, 3}) tiles.push_back({queries, keys, 2 * warpgroup_warps, stages});
  }
  return tiles;
}

std::vector<TileConfig> cpu_tiles() {
  std::vector<TileConfig> tiles;
  for (const int block_m : {32, 64, 128}) {
    for (const int block_n : {32, 64, 128}) tiles.push_back({block_m, block_n, 1, 1});
  }
  return tiles;
}

/// Results and scores of a computing thread. A warp's 16 rows of n binary32 columns are n / 2 registers of each of its
/// threads; so are a warpgroup's 64 rows.
int accumulators_of(const KernelSpec& spec) {
  const int qk = padded_head_dim(spec.head_dim_qk);
  const int v = padded_head_dim(spec.head_dim_v);
  const TileConfig& tile = spec.tile;
  if (spec.direction == Direction::forward) {
    const int scores = tile.block_n / 2;
    // The weights of one tile, 16 bits each, are multiplied while the scores of the next are computed.
    const int weights = spec.family == KernelFamily::hopper ? tile.block_n / 4 : 0;
    return scores + weights + v / 2;
  }
  if (spec.family == KernelFamily::mma) {
    constexpr int strip = 16;
    const int groups = std::max(tile.num_warps * rows_per_warp / tile.block_m, 1);
    const auto group_columns = [groups](int columns) { return (columns / 16 + groups - 1) / groups * 16; };
    return (group_columns(qk) + group_columns(v)) / 2 + 2 * strip / 2;
  }
  const int scores = step_sizes(spec).queries / 2;
  if (splits_roles(spec)) return std::max(qk, v) / 2 + 2 * scores;
  return (qk + v) / 2 + 2 * scores;
}

/// What a computing thread has beside its accumulators.
struct OtherRegisters {
  int fewest;
  int usual;
};
/// Measured over the tiles above with NVRTC 13.0 (tests/cuda/tile_matrix.cpp): fragments, addresses, row maxima and the
/// mask take 64 to 107 in the mma family. The hopper family's are given out by setmaxnreg; its fewest is what spills.
OtherRegisters other_registers(const KernelSpec& spec, bool light_mask) {
  const int program = (light_mask ? 0 : 16) + (spec.score.empty() ? 0 : 16);
  if (spec.family == KernelFamily::mma) return {64 + program, 88 + program};
  return {32 + program, 40 + program};
}

int threads_of(const KernelSpec& spec) {
  const int copying = spec.family == KernelFamily::hopper ? warpgroup_warps : 0;
  return (spec.tile.num_warps + copying) * threads_per_warp;
}

int computing_thread_limit(const KernelSpec& spec) {
  if (spec.family == KernelFamily::mma) return register_limit(threads_of(spec));
  constexpr int of_two = 232;  // what setmaxnreg gives, by warpgroups that compute
  constexpr int of_three = 160;
  return spec.tile.num_warps == 3 * warpgroup_warps ? of_three : of_two;
}

/// As the compiler gives them out: all threads of a hopper block start with the same number.
int allocated_registers(const KernelSpec& spec, const Resources& resources) {
  if (spec.family == KernelFamily::hopper) return register_limit(resources.threads);
  return resources.registers;
}

std::string listed(const std::vector<TileConfig>& tiles) {
  std::string text;
  for (const TileConfig& tile : tiles) text += (text.empty() ? "" : "; ") + to_string(tile);
  return text;
}

/// Part of the work that stands in rows of tiles past the end.
double filled(std::int64_t length, int block) {
  if (length <= 0) return 1;
  const std::int64_t tiles = (length + block - 1) / block;
  return static_cast<double>(length) / static_cast<double>(tiles * block);
}

/// Part of the multiprocessors' time that has a block, where each takes as many as the next; a persistent kernel
/// balances its own.
double balance(const KernelSpec& spec, const CallSize& size) {
  if (spec.family == KernelFamily::hopper || spec.target.kind == DeviceKind::cpu) return 1;
  const std::int64_t tiles = (size.shape.q_len + spec.tile.block_m - 1) / spec.tile.block_m;
  const auto blocks = static_cast<double>(std::max<std::int64_t>(size.shape.batch * size.shape.query_heads * tiles, 1));
  const double rounds = blocks / std::max(size.processors, 1);
  return rounds / std::ceil(rounds);
}

/// Products of a tile for those that one column group would take: each recomputes scores and dP, two of three.
double repeated_products(const KernelSpec& spec) {
  if (spec.direction == Direction::forward || spec.family == KernelFamily::hopper) return 1;
  const int groups = spec.tile.num_warps * rows_per_warp / spec.tile.block_m;
  return (2.0 * groups + 1) / 3;
}

}  // namespace

Resources resources_of(const KernelSpec& spec, bool light_mask) {
  Resources resources;
  if (spec.target.kind == DeviceKind::cpu) return resources;
  const ArchLimits limits = arch_limits(spec.target.arch);
  resources.threads = threads_of(spec);
  resources.shared_bytes = shared_memory_bytes(spec);
  if (!spec.score_gradients.empty()) {
    resources.shared_bytes = std::max(resources.shared_bytes, score_gradient_tile_bytes(spec));
  }
  resources.shared_limit = limits.shared_bytes_per_block;
  resources.accumulators = accumulators_of(spec);
  const OtherRegisters others = other_registers(spec, light_mask);
  resources.register_limit = computing_thread_limit(spec);
  resources.fewest_registers = resources.accumulators + others.fewest;
  resources.registers = std::min(resources.accumulators + others.usual, resources.register_limit);
  resources.blocks =
      resident_blocks(limits, resources.threads, allocated_registers(spec, resources), resources.shared_bytes);
  const int resident_threads = resources.blocks * resources.threads;
  resources.occupancy = static_cast<double>(resident_threads) / (limits.warps * threads_per_warp);
  return resources;
}

std::vector<TileConfig> legal_tiles(const KernelSpec& spec) {
  if (spec.target.kind == DeviceKind::cpu) return cpu_tiles();
  const bool forward = spec.direction == Direction::forward;
  switch (spec.family) {
    case KernelFamily::mma:
      return forward ? mma_forward_tiles() : mma_backward_tiles();
    case KernelFamily::hopper:
      return forward ? hopper_forward_tiles(spec) : hopper_backward_tiles(spec);
  }
  return {};
}

Result<void> check_tile(const KernelSpec& spec) {
  const auto refused = [&spec](std::string takes) {
    return Error{ErrorCode::bad_argument, "tile", to_string(spec.tile), std::move(takes), ""};
  };
  const std::vector<TileConfig> tiles = legal_tiles(spec);
  if (std::ranges::find(tiles, spec.tile) == tiles.end()) {
    return refused("one of those of this kernel (" + listed(tiles) + ")");
  }
  if (spec.target.kind == DeviceKind::cpu) return {};
  const Resources resources = resources_of(spec, /*light_mask=*/true);
  if (resources.blocks > 0) return {};
  return refused("a tile of at most " + std::to_string(resources.shared_limit) + " bytes of shared memory on " +
                 to_string(spec.target) + "; this one needs " + std::to_string(resources.shared_bytes));
}

bool is_launchable(const KernelSpec& spec, int compiled_registers) {
  if (spec.target.kind == DeviceKind::cpu) return true;
  return resident_blocks(arch_limits(spec.target.arch), threads_of(spec), compiled_registers,
                         shared_memory_bytes(spec)) > 0;
}

double predicted_cost(const KernelSpec& spec, const Resources& resources, const CallSize& size) {
  const TileConfig& tile = spec.tile;
  // Copies are shared by the rows of a tile, and what is done once a step by its columns.
  const double rows = tile.block_m;
  const double columns = step_sizes(spec).keys;
  double cost = 1 + 24 / rows + 24 / columns;
  if (spec.target.kind == DeviceKind::cuda) {
    // Warps that wait for a copy or for a product need others to work meanwhile.
    const double waiting = tile.num_stages == 1 ? 4.0 : 2.0;
    cost *= 1 + waiting / std::max(resources.blocks * tile.num_warps, 1);
    cost *= 1 - 0.02 * std::min(tile.num_stages, 3);
    cost *= repeated_products(spec);
  }
  const double useful = filled(size.shape.q_len, tile.block_m) * filled(size.shape.kv_len, tile.block_n);
  return cost / useful / balance(spec, size);
}

std::vector<ModelledTile> modelled_tiles(const KernelSpec& spec, bool light_mask, const CallSize& size) {
  std::vector<ModelledTile> tiles;
  for (const TileConfig& tile : legal_tiles(spec)) {
    KernelSpec tiled = spec;
    tiled.tile = tile;
    const Resources resources = resources_of(tiled, light_mask);
    const bool on_cpu = spec.target.kind == DeviceKind::cpu;
    if (on_cpu || resources.fits()) tiles.push_back({tile, resources, predicted_cost(tiled, resources, size)});
  }
  // Among equals the sizes decide: std::stable_sort of this library is deprecated C++ to clang.
  std::ranges::sort(tiles, {}, [](const ModelledTile& one) {
    return std::tuple(one.cost, one.tile.block_m, one.tile.block_n, one.tile.num_warps, one.tile.num_stages);
  });
  return tiles;
}

}  // namespace flashspan::kernel
