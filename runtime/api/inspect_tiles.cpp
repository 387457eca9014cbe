// inspect_tiles.cpp -- exact classification of the tiles of one batch and head, on the host.
#include <algorithm>
#include <string>
#include <vector>

#include "codegen/mask/evaluate.hpp"
#include "codegen/mask/tile_intervals.hpp"
#include "flashspan/inspect.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/attention/validate_program.hpp"

namespace flashspan {

namespace {

using attention::bad_argument;

Result<void> check_index(const char* argument, std::int64_t index, std::int64_t count) {
  if (index >= 0 && index < count) return {};
  return bad_argument(argument, std::to_string(index), "0 to " + std::to_string(count - 1));
}

Result<void> check_block(const char* argument, std::int64_t size) {
  if (size >= 1 && size <= max_sequence_length) return {};
  return bad_argument(argument, std::to_string(size), "1 to " + std::to_string(max_sequence_length));
}

TileKind to_kind(mask::TileClass tile_class) {
  switch (tile_class) {
    case mask::TileClass::empty:
      return TileKind::empty;
    case mask::TileClass::full:
      return TileKind::full;
    case mask::TileClass::partial:
      return TileKind::partial;
  }
  return TileKind::partial;
}

std::int64_t pairs_of(const mask::TileBounds& bounds) {
  return (bounds.q.hi - bounds.q.lo + 1) * (bounds.k.hi - bounds.k.lo + 1);
}

/// Classifies one tile and adds it to the map.
void add_tile(const MaskState& state, const mask::TileBounds& bounds, TileMap& map) {
  mask::TileClass tile_class = mask::classify(state.program, state.bindings, bounds);
  std::int64_t visible = tile_class == mask::TileClass::full ? pairs_of(bounds) : 0;
  if (tile_class == mask::TileClass::partial) {
    ++map.undecided_by_analysis;
    tile_class = mask::classify_exactly(state.program, state.bindings, bounds, &visible);
  }
  const TileKind kind = to_kind(tile_class);
  map.kinds.push_back(kind);
  map.visible_pairs += visible;
  map.empty += kind == TileKind::empty ? 1 : 0;
  map.full += kind == TileKind::full ? 1 : 0;
  map.partial += kind == TileKind::partial ? 1 : 0;
}

}  // namespace

Result<TileMap> tile_map(const Mask& mask, const AttentionShape& shape, std::int64_t batch, std::int64_t head,
                         std::int64_t block_m, std::int64_t block_n) {
  const MaskState& state = mask.state();
  if (auto legal = attention::check_shape(shape); !legal) return legal.error();
  if (auto index = check_index("batch", batch, shape.batch); !index) return index.error();
  if (auto index = check_index("head", head, shape.query_heads); !index) return index.error();
  if (auto block = check_block("block_m", block_m); !block) return block.error();
  if (auto block = check_block("block_n", block_n); !block) return block.error();
  if (auto host = attention::check_in_host_memory("mask", state); !host) return host.error();
  if (auto fits = attention::check_mask(state, shape, Device{}); !fits) return fits.error();

  TileMap map;
  map.block_m = block_m;
  map.block_n = block_n;
  map.rows = (shape.q_len + block_m - 1) / block_m;
  map.columns = (shape.kv_len + block_n - 1) / block_n;
  map.kinds.reserve(static_cast<std::size_t>(map.rows * map.columns));
  for (std::int64_t row = 0; row < map.rows; ++row) {
    for (std::int64_t column = 0; column < map.columns; ++column) {
      mask::TileBounds bounds;
      bounds.b = {batch, batch};
      bounds.h = {head, head};
      bounds.q = {row * block_m, std::min((row + 1) * block_m, shape.q_len) - 1};
      bounds.k = {column * block_n, std::min((column + 1) * block_n, shape.kv_len) - 1};
      bounds.q_len = shape.q_len;
      bounds.kv_len = shape.kv_len;
      add_tile(state, bounds, map);
    }
  }
  return map;
}

}  // namespace flashspan
