// tile_config.cpp -- the table of tiles and the resource model behind it.
#include "codegen/kernel/tile_config.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernel/arch_limits.hpp"
#include "codegen/kernel/resource_model.hpp"

namespace flashspan::kernel {
namespace {

constexpr std::int64_t bytes_per_element = 2;  // CUDA kernels take f16 and bf16
constexpr std::int64_t row_padding = 8;        // see templates/tile/shared_tile.cuh
constexpr Arch hopper_arch{90, 'a'};

// From the most to the least demanding. The first that fits the architecture is taken.
constexpr std::array forward_tiles{
    TileConfig{.block_m = 128, .block_n = 64, .num_warps = 8, .num_stages = 2},
    TileConfig{.block_m = 128, .block_n = 64, .num_warps = 8, .num_stages = 1},
    TileConfig{.block_m = 64, .block_n = 32, .num_warps = 4, .num_stages = 1},
};
// A warp holds 16 rows of dK and dV in registers; 256 columns of both together fit.
constexpr std::array narrow_backward_tiles{
    TileConfig{.block_m = 64, .block_n = 64, .num_warps = 4, .num_stages = 1},
};
// Twice the warps of rows: two column groups (templates/attention/backward_mma.cuh).
constexpr std::array wide_backward_tiles{
    TileConfig{.block_m = 64, .block_n = 64, .num_warps = 8, .num_stages = 1},
    TileConfig{.block_m = 32, .block_n = 32, .num_warps = 4, .num_stages = 1},
};
constexpr int widest_narrow_backward = 256;
// wgmma: 64 query rows a warpgroup. Wide tiles of keys first; with a third warpgroup a thread has 160 registers, which
// is enough for 64 columns of results if neither mask nor score takes many, and the exponentials of small head dims
// need its help.
constexpr std::array narrow_hopper_tiles{
    TileConfig{.block_m = 192, .block_n = 128, .num_warps = 12, .num_stages = 2},
};
constexpr std::array hopper_tiles{
    TileConfig{.block_m = 128, .block_n = 128, .num_warps = 8, .num_stages = 2},
    TileConfig{.block_m = 128, .block_n = 112, .num_warps = 8, .num_stages = 2},
    TileConfig{.block_m = 128, .block_n = 96, .num_warps = 8, .num_stages = 2},
    TileConfig{.block_m = 128, .block_n = 80, .num_warps = 8, .num_stages = 2},
};
// What a score program computes with is taken from the scores of a tile.
constexpr std::array wide_scored_hopper_tiles{
    TileConfig{.block_m = 128, .block_n = 64, .num_warps = 8, .num_stages = 2},
};
constexpr int widest_narrow_hopper = 64;
// 128 keys, 64 for each of two warpgroups; queries as many as leave their scores registers beside dK and dV.
constexpr std::array narrow_hopper_backward_tiles{
    TileConfig{.block_m = 128, .block_n = 128, .num_warps = 8, .num_stages = 2},
};
constexpr std::array hopper_backward_tiles{
    TileConfig{.block_m = 64, .block_n = 128, .num_warps = 8, .num_stages = 3},
};
// One tile for both passes; the steps within it are smaller (step_sizes()).
constexpr std::array two_pass_tiles{
    TileConfig{.block_m = 128, .block_n = 128, .num_warps = 8, .num_stages = 2},
};
// Where roles are split (splits_roles()). Three stages fit up to 192 columns.
constexpr std::array wide_hopper_backward_tiles{
    TileConfig{.block_m = 64, .block_n = 64, .num_warps = 8, .num_stages = 3},
    TileConfig{.block_m = 64, .block_n = 64, .num_warps = 8, .num_stages = 2},
};
constexpr std::array wide_two_pass_tiles{
    TileConfig{.block_m = 128, .block_n = 64, .num_warps = 8, .num_stages = 2},
};
constexpr int widest_scored_hopper = 192;
constexpr TileConfig cpu_tile{.block_m = 64, .block_n = 64, .num_warps = 1, .num_stages = 1};

int widest_head_dim(const KernelSpec& spec) { return std::max(spec.head_dim_qk, spec.head_dim_v); }

std::span<const TileConfig> mma_candidates(const KernelSpec& spec) {
  if (spec.direction == Direction::forward) return forward_tiles;
  if (padded_head_dim(spec.head_dim_qk) + padded_head_dim(spec.head_dim_v) <= widest_narrow_backward)
    return narrow_backward_tiles;
  return wide_backward_tiles;
}

/// For scores that need more registers than the usual tiles leave them; fits the shared memory of every architecture.
TileConfig smallest_mma_tile(Direction direction) {
  return direction == Direction::forward ? forward_tiles.back() : wide_backward_tiles.back();
}

std::span<const TileConfig> hopper_candidates(const KernelSpec& spec, bool light_mask) {
  const int head_dim = widest_head_dim(spec);
  if (spec.direction == Direction::backward) {
    if (splits_roles(spec)) {
      if (spec.two_passes) return wide_two_pass_tiles;
      return wide_hopper_backward_tiles;
    }
    if (spec.two_passes) return two_pass_tiles;
    if (spec.score.empty() && light_mask && head_dim <= widest_narrow_hopper) return narrow_hopper_backward_tiles;
    return hopper_backward_tiles;
  }
  if (!spec.score.empty() && head_dim > widest_scored_hopper) return wide_scored_hopper_tiles;
  if (spec.score.empty() && light_mask && !spec.split_rows && head_dim <= widest_narrow_hopper)
    return narrow_hopper_tiles;
  return hopper_tiles;
}

std::span<const TileConfig> candidates(const KernelSpec& spec, bool light_mask) {
  switch (spec.family) {
    case KernelFamily::mma:
      return mma_candidates(spec);
    case KernelFamily::hopper:
      return hopper_candidates(spec, light_mask);
  }
  return {};
}

std::int64_t mma_shared_bytes(const KernelSpec& spec, const TileConfig& tile) {
  const std::int64_t qk_pitch = padded_head_dim(spec.head_dim_qk) + row_padding;
  const std::int64_t v_pitch = padded_head_dim(spec.head_dim_v) + row_padding;
  switch (spec.direction) {
    case Direction::forward:
      return (tile.block_m * qk_pitch + tile.num_stages * (tile.block_n * (qk_pitch + v_pitch))) * bytes_per_element;
    case Direction::backward: {
      constexpr std::int64_t bytes_per_float = 4;
      // Query, dO, key and value; LSE and delta of the query rows, and one number per key.
      return (tile.block_m + tile.block_n) * (qk_pitch + v_pitch) * bytes_per_element +
             (2 * tile.block_m + tile.block_n) * bytes_per_float;
    }
  }
  return 0;
}

constexpr int panel_columns = 64;  // templates/ptx/warpgroup.cuh
constexpr std::int64_t panel_row_bytes = panel_columns * bytes_per_element;

std::int64_t panels_of(int head_dim) { return (head_dim + panel_columns - 1) / panel_columns; }

/// Panels, and the barriers, items and portions of templates/attention/forward_hopper.cuh.
std::int64_t hopper_forward_bytes(const KernelSpec& spec, const TileConfig& tile) {
  const std::int64_t exchange_bytes = spec.split_rows ? 1424 : 336;
  const std::int64_t qk_panels = panels_of(spec.head_dim_qk);
  const std::int64_t v_panels = panels_of(spec.head_dim_v);
  return (query_stages(spec) * tile.block_m * qk_panels + tile.num_stages * (tile.block_n * (qk_panels + v_panels))) *
             panel_row_bytes +
         exchange_bytes;
}

/// Panels of key, value, query, dO and dS; LSE and delta of the query rows, barriers and items of
/// templates/attention/backward_hopper.cuh.
std::int64_t key_pass_bytes(const KernelSpec& spec, const TileConfig& tile, const StepSizes& step) {
  constexpr std::int64_t bytes_per_float = 4;
  constexpr std::int64_t exchange_bytes = 416;
  const std::int64_t score_gradient_buffers = spec.two_passes ? 0 : 2;
  const std::int64_t weight_buffers = splits_roles(spec) ? (spec.two_passes ? 2 : 1) : 0;
  const std::int64_t weight_bytes = weight_buffers * tile.block_n * step.queries * bytes_per_float;
  const std::int64_t rows = tile.block_n + tile.num_stages * step.queries;
  const std::int64_t panels = panels_of(spec.head_dim_qk) + panels_of(spec.head_dim_v);
  return (rows * panels + score_gradient_buffers * tile.block_n * (step.queries / panel_columns)) * panel_row_bytes +
         weight_bytes + 2 * tile.num_stages * step.queries * bytes_per_float + exchange_bytes;
}

/// Panels of query, dO, key and value; barriers and items of templates/attention/backward_query_pass.cuh.
std::int64_t query_pass_bytes(const KernelSpec& spec, const TileConfig& tile, const StepSizes& step) {
  constexpr std::int64_t exchange_bytes = 512;
  const QueryPassStages stages = query_pass_stages(spec);
  const std::int64_t key_rows = tile.block_m + stages.keys * step.keys;
  const std::int64_t value_rows = tile.block_m + stages.values * step.keys;
  return (key_rows * panels_of(spec.head_dim_qk) + value_rows * panels_of(spec.head_dim_v)) * panel_row_bytes +
         exchange_bytes;
}

std::int64_t hopper_backward_bytes(const KernelSpec& spec, const TileConfig& tile) {
  KernelSpec tiled = spec;
  tiled.tile = tile;
  const StepSizes step = step_sizes(tiled);
  const std::int64_t bytes = key_pass_bytes(spec, tile, step);
  return spec.two_passes ? std::max(bytes, query_pass_bytes(spec, tile, step)) : bytes;
}

/// Of a spec with this tile in place of its own.
std::int64_t shared_bytes(const KernelSpec& spec, const TileConfig& tile) {
  switch (spec.family) {
    case KernelFamily::mma:
      return mma_shared_bytes(spec, tile);
    case KernelFamily::hopper:
      return spec.direction == Direction::forward ? hopper_forward_bytes(spec, tile)
                                                  : hopper_backward_bytes(spec, tile);
  }
  return 0;
}

Result<void> check_head_dim(const char* name, int head_dim) {
  if (head_dim >= smallest_head_dim && head_dim <= largest_head_dim && head_dim % head_dim_step == 0) return {};
  return Error{ErrorCode::unsupported, name, std::to_string(head_dim),
               std::to_string(smallest_head_dim) + " to " + std::to_string(largest_head_dim) + " in steps of " +
                   std::to_string(head_dim_step) + " on CUDA",
               ""};
}

/// Of the 232 registers of a computing thread of the hopper family, scores, weights and results take these; what is
/// left is for addresses, row maxima and the mask. The mma family's tiles are all small enough.
bool registers_fit(const KernelSpec& spec, const TileConfig& tile) {
  if (spec.family != KernelFamily::hopper || spec.direction == Direction::backward) return true;
  constexpr int most_registers = 190;
  const int scores = tile.block_n / 2;
  const int weights = tile.block_n / 4;
  return scores + weights + padded_head_dim(spec.head_dim_v) / 2 <= most_registers;
}

}  // namespace

bool splits_roles(const KernelSpec& spec) {
  constexpr int widest_one_role = 128;
  return widest_head_dim(spec) > widest_one_role;
}

std::int64_t shared_memory_limit(Arch arch) { return arch_limits(arch).shared_bytes_per_block; }

int query_stages(const KernelSpec& spec) {
  constexpr int widest = 128;
  return spec.family == KernelFamily::hopper && widest_head_dim(spec) <= widest ? 2 : 1;
}

std::int64_t shared_memory_bytes(const KernelSpec& spec) { return shared_bytes(spec, spec.tile); }

std::int64_t score_gradient_tile_bytes(const KernelSpec& spec) {
  constexpr std::int64_t bytes_per_float = 4;
  const std::int64_t pitches = padded_head_dim(spec.head_dim_qk) + padded_head_dim(spec.head_dim_v) + 2 * row_padding;
  // Query, dO, key and value; LSE and delta of the query rows.
  return (spec.tile.block_m + spec.tile.block_n) * pitches * bytes_per_element +
         2 * spec.tile.block_m * bytes_per_float;
}

FamilyChoice choose_family(const KernelSpec& spec, const FamilyNeeds& needs) {
  if (spec.target.kind == DeviceKind::cpu) return {KernelFamily::mma, "a CPU kernel has no family"};
  if (spec.target.arch != hopper_arch) {
    return {KernelFamily::mma, "mma.sync runs on every architecture; wgmma is sm_90a's alone"};
  }
  if (!spec.aligned) {
    return {KernelFamily::mma, "the copy engine takes rows and strides of multiples of 16 bytes, and these are not"};
  }
  if (needs.expanded) {
    return {KernelFamily::mma, "whether the copy engine takes a stride of 0 is nowhere said, and a tensor has one"};
  }
  if (spec.direction == Direction::backward && needs.deterministic) {
    return {KernelFamily::hopper, "sm_90a; dQ in a pass of its own, so that its sums have one order"};
  }
  return {KernelFamily::hopper,
          "sm_90a, and every row starts at a multiple of 16 bytes (mma if mask or score take too many registers)"};
}

std::optional<KernelSpec> fallback_of(const KernelSpec& spec) {
  KernelSpec fallback = spec;
  if (spec.family == KernelFamily::mma) {
    if (spec.score.empty() || spec.target.kind == DeviceKind::cpu) return std::nullopt;
    fallback.tile = smallest_mma_tile(spec.direction);
    if (fallback.tile == spec.tile) return std::nullopt;
    return fallback;
  }
  const auto roomier = default_tile(spec, /*light_mask=*/false);
  if (roomier && *roomier != spec.tile) {
    fallback.tile = *roomier;
    return fallback;
  }
  if (spec.direction == Direction::backward && !spec.two_passes) {
    fallback.two_passes = true;
  } else {
    fallback.family = KernelFamily::mma;
    fallback.two_passes = false;
  }
  fallback.lowering = served_lowering(fallback, spec.lowering);
  fallback.split_rows = spec.split_rows && can_split_rows(fallback);
  const auto tile = default_tile(fallback, /*light_mask=*/false);
  if (!tile) return std::nullopt;
  fallback.tile = *tile;
  return fallback;
}

std::optional<KernelSpec> interpreted_of(const KernelSpec& spec) {
  if (!spec.score.empty()) return std::nullopt;
  KernelSpec general = spec;
  general.family = KernelFamily::mma;
  general.lowering = mask::LoweringKind::interpreted;
  general.mask.clear();
  general.aligned = false;
  general.split_rows = general.two_passes = false;
  const auto tile = default_tile(general, /*light_mask=*/false);
  if (!tile) return std::nullopt;
  general.tile = *tile;
  return general;
}

mask::LoweringKind served_lowering(const KernelSpec& spec, mask::LoweringKind lowering) {
  if (lowering == mask::LoweringKind::interpreted) return lowering;
  const bool evaluates = spec.direction == Direction::backward && spec.family == KernelFamily::mma;
  return evaluates && lowering != mask::LoweringKind::none ? mask::LoweringKind::expression : lowering;
}

bool takes_two_passes(const KernelSpec& spec, const FamilyNeeds& needs) {
  if (spec.direction == Direction::forward || spec.family != KernelFamily::hopper) return false;
  return needs.deterministic;
}

StepSizes step_sizes(const KernelSpec& spec) {
  constexpr int short_step = 64;
  if (spec.two_passes) return {.queries = short_step, .keys = short_step};
  return {.queries = spec.tile.block_m, .keys = spec.tile.block_n};
}

QueryPassStages query_pass_stages(const KernelSpec& spec) {
  if (!splits_roles(spec)) return {.keys = 4, .values = 3};
  constexpr int three_panels = 192;
  return widest_head_dim(spec) <= three_panels ? QueryPassStages{.keys = 3, .values = 2}
                                               : QueryPassStages{.keys = 2, .values = 1};
}

QueryGradientShare query_gradient_share(const KernelSpec& spec) {
  constexpr int warpgroup_rows = 64;
  const int columns = padded_head_dim(spec.head_dim_qk);
  if (step_sizes(spec).queries > warpgroup_rows) return {.columns = columns, .keys = spec.tile.block_n, .sums = 2};
  if (splits_roles(spec) || columns > panel_columns) {
    return {.columns = panel_columns, .keys = spec.tile.block_n, .sums = static_cast<int>(panels_of(columns))};
  }
  return {.columns = columns, .keys = warpgroup_rows, .sums = 1};
}

bool can_split_rows(const KernelSpec& spec) {
  constexpr int most_columns = 128;
  return spec.direction == Direction::forward && spec.family == KernelFamily::hopper && spec.head_dim_v <= most_columns;
}

bool worth_splitting(const AttentionShape& shape) {
  constexpr std::int64_t fewest_keys = 1024;
  const std::int64_t lists = shape.batch * shape.query_heads;
  if (shape.kv_len < fewest_keys || shape.q_len == 0 || lists == 0) return false;
  return lists < fewest_whole_rows && (shape.q_len + split_block_m - 1) / split_block_m * lists < fewest_whole_rows;
}

bool is_in_table(const KernelSpec& spec) {
  if (spec.target.kind == DeviceKind::cpu) return spec.tile == cpu_tile;
  const auto has = [&spec](bool light_mask) {
    const std::span<const TileConfig> tiles = candidates(spec, light_mask);
    return std::ranges::find(tiles, spec.tile) != tiles.end();
  };
  return has(true) || has(false);
}

Result<TileConfig> default_tile(const KernelSpec& spec, bool light_mask) {
  if (spec.target.kind == DeviceKind::cpu) return cpu_tile;
  if (const auto served = check_arch(spec.target.arch); !served) return served.error();
  if (const auto fits = check_head_dim("head_dim_qk", spec.head_dim_qk); !fits) return fits.error();
  if (const auto fits = check_head_dim("head_dim_v", spec.head_dim_v); !fits) return fits.error();
  const std::int64_t limit = shared_memory_limit(spec.target.arch);
  for (const TileConfig& tile : candidates(spec, light_mask)) {
    if (shared_bytes(spec, tile) <= limit && registers_fit(spec, tile)) return tile;
  }
  const std::vector<ModelledTile> modelled = modelled_tiles(spec, light_mask);
  if (!modelled.empty()) return modelled.front().tile;
  return Error{
      ErrorCode::unsupported, "head_dim_qk",
      std::to_string(spec.head_dim_qk) + " with head_dim_v " + std::to_string(spec.head_dim_v),
      "head dims whose tiles fit " + std::to_string(limit) + " bytes of shared memory on " + to_string(spec.target),
      ""};
}

}  // namespace flashspan::kernel
