// workspace.hpp -- how one call's workspace is cut up: tile lists, then packed fp32 operands. Sizes depend on spec
// and shape alone.
#pragma once

#include <cstdint>

#include "runtime/cpu/call_sizes.hpp"

namespace flashspan::cpu {

/// Rows of one tensor in fp32, tile by tile: [batch, heads, tiles, tile_rows, columns], and for every row whether it
/// holds a NaN or an infinity.
struct PackedRows {
  float* values = nullptr;
  std::uint8_t* nonfinite = nullptr;
  std::int64_t heads = 0, tiles = 0, tile_rows = 0, columns = 0;

  [[nodiscard]] std::int64_t tile_number(std::int64_t b, std::int64_t head, std::int64_t tile) const {
    return (b * heads + head) * tiles + tile;
  }
  [[nodiscard]] float* tile(std::int64_t b, std::int64_t head, std::int64_t tile) const {
    return values + tile_number(b, head, tile) * tile_rows * columns;
  }
  [[nodiscard]] std::uint8_t* flags(std::int64_t b, std::int64_t head, std::int64_t tile) const {
    return nonfinite + tile_number(b, head, tile) * tile_rows;
  }
};

/// Tiles of one tensor, transposed: [batch, heads, tiles, columns, tile_rows].
using PackedColumns = PackedRows;

struct Workspace {
  std::int32_t* by_query_counts = nullptr;  ///< [plan_batch, plan_heads, q_tiles]
  std::int32_t* by_query_tiles = nullptr;   ///< [.., q_tiles, k_tiles], ascending; the sign bit marks a partial tile
  std::int32_t* by_key_counts = nullptr;    ///< the transpose; backward only
  std::int32_t* by_key_tiles = nullptr;
  PackedColumns key_columns;    ///< both directions
  PackedRows value;             ///< forward
  PackedColumns value_columns;  ///< backward, as all below
  PackedRows key;
  PackedRows query;  ///< times scale
  PackedRows out_gradient;
  PackedRows query_gradient;     ///< sum so far, without scale
  PackedRows lse;                ///< one column
  PackedRows delta;              ///< one column: rowsum(dO * O) - dLSE
  double* score_sums = nullptr;  ///< of the elements of every score gradient, one after another
  std::int64_t bytes = 0;        ///< of the whole, alignment included
};

/// The regions at `base`; with a null base only `bytes` means anything.
[[nodiscard]] Workspace lay_out(Direction direction, const CallSizes& sizes, void* base);

}  // namespace flashspan::cpu
