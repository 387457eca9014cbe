// tile_config.hpp -- TileConfig: the sizes of a kernel that change its speed and never its results.
#pragma once

#include <string>

#pragma GCC visibility push(default)
namespace flashspan {

/// block_m query rows by block_n key columns is one tile. In Triton's words BLOCK_M, BLOCK_N, num_warps, num_stages.
struct TileConfig {
  int block_m = 64;
  int block_n = 64;
  int num_warps = 4;   ///< CUDA only: warps that compute
  int num_stages = 1;  ///< CUDA only: key/value tiles in flight
  friend bool operator==(const TileConfig&, const TileConfig&) = default;
};

/// "128x64, 8 warps, 2 stages".
[[nodiscard]] std::string to_string(const TileConfig& tile);

}  // namespace flashspan
#pragma GCC visibility pop
