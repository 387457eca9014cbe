// tile_config.cpp -- the table of tiles and the resource model behind it.
#include "codegen/kernel/tile_config.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>

namespace flashspan::kernel {
namespace {

constexpr std::int64_t bytes_per_element = 2;  // CUDA kernels take f16 and bf16
constexpr std::int64_t row_padding = 8;        // see templates/tile/shared_tile.cuh
constexpr std::int64_t kibibyte = 1024;

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
constexpr TileConfig cpu_tile{.block_m = 64, .block_n = 64, .num_warps = 1, .num_stages = 1};

std::span<const TileConfig> candidates(Direction direction, int head_dim_qk, int head_dim_v) {
  if (direction == Direction::forward) return forward_tiles;
  if (padded_head_dim(head_dim_qk) + padded_head_dim(head_dim_v) <= widest_narrow_backward)
    return narrow_backward_tiles;
  return wide_backward_tiles;
}

Result<void> check_head_dim(const char* name, int head_dim) {
  if (head_dim >= smallest_head_dim && head_dim <= largest_head_dim && head_dim % head_dim_step == 0) return {};
  return Error{ErrorCode::unsupported, name, std::to_string(head_dim),
               std::to_string(smallest_head_dim) + " to " + std::to_string(largest_head_dim) + " in steps of " +
                   std::to_string(head_dim_step) + " on CUDA",
               ""};
}

}  // namespace

std::int64_t shared_memory_limit(Arch arch) {
  switch (arch.number) {
    case 80:
    case 87:
      return 163 * kibibyte;
    case 90:
    case 100:
    case 101:
    case 103:
    case 110:
      return 227 * kibibyte;
    default:  // 86, 89, 120, 121, and what we do not know: the smallest limit of all
      return 99 * kibibyte;
  }
}

std::int64_t shared_memory_bytes(Direction direction, DType dtype, int head_dim_qk, int head_dim_v,
                                 const TileConfig& tile) {
  (void)dtype;
  const std::int64_t qk_pitch = padded_head_dim(head_dim_qk) + row_padding;
  const std::int64_t v_pitch = padded_head_dim(head_dim_v) + row_padding;
  switch (direction) {
    case Direction::forward:
      return (tile.block_m * qk_pitch + tile.num_stages * tile.block_n * (qk_pitch + v_pitch)) * bytes_per_element;
    case Direction::backward: {
      constexpr std::int64_t bytes_per_float = 4;
      // Query, dO, key and value; LSE and delta of the query rows, and one number per key.
      return (tile.block_m + tile.block_n) * (qk_pitch + v_pitch) * bytes_per_element +
             (2 * tile.block_m + tile.block_n) * bytes_per_float;
    }
  }
  return 0;
}

Result<TileConfig> default_tile(Direction direction, const Target& target, DType dtype, int head_dim_qk,
                                int head_dim_v) {
  if (target.kind == DeviceKind::cpu) return cpu_tile;
  if (const auto fits = check_head_dim("head_dim_qk", head_dim_qk); !fits) return fits.error();
  if (const auto fits = check_head_dim("head_dim_v", head_dim_v); !fits) return fits.error();
  const std::int64_t limit = shared_memory_limit(target.arch);
  const auto tiles = candidates(direction, head_dim_qk, head_dim_v);
  const auto found = std::find_if(tiles.begin(), tiles.end(), [&](const TileConfig& tile) {
    return shared_memory_bytes(direction, dtype, head_dim_qk, head_dim_v, tile) <= limit;
  });
  if (found != tiles.end()) return *found;
  return Error{ErrorCode::unsupported, "head_dim_qk",
               std::to_string(head_dim_qk) + " with head_dim_v " + std::to_string(head_dim_v),
               "head dims whose tiles fit " + std::to_string(limit) + " bytes of shared memory on " + to_string(target),
               ""};
}

}  // namespace flashspan::kernel
