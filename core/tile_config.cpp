#include "flashspan/core/tile_config.hpp"

namespace flashspan {

std::string to_string(const TileConfig& tile) {
  const auto counted = [](int number, const char* noun) {
    return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
  };
  return std::to_string(tile.block_m) + "x" + std::to_string(tile.block_n) + ", " + counted(tile.num_warps, "warp") +
         ", " + counted(tile.num_stages, "stage");
}

}  // namespace flashspan
