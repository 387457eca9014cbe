// tile_grid.cuh -- the tiles of a call as the planner walks them: lists of rows of tiles, cut into patches.
#pragma once

#include "attention/parameters.cuh"
#include "generated/kernel_spec.cuh"
#include "mask/interval.cuh"

namespace flashspan_device {

/// TileEntry::mask of a tile without a visible pair, until its row is listed.
constexpr int empty_tile = -3;

struct TilePlace {
  int list;  // b * plan_heads + h
  int query_tile;
  int key_tile;
};

/// The pairs of one tile that lie inside the lengths.
struct TileExtent {
  int first_q;
  int rows;
  int first_k;
  int columns;
};

/// Rows of tiles that are listed together: those of a row of patches, or by key those of a column of patches.
struct RowGroup {
  int list;
  bool by_key;
  int number;  // among those of its list and direction
};

/// Tiles of one list, and their patches, row by row.
struct TileGrid {
  int q_len;
  int kv_len;
  int heads;
  int lists;
  int query_tiles;
  int key_tiles;
  int patch_rows;
  int patch_columns;
  int patches;
  bool by_key;  // rows of key tiles are planned too

  __device__ explicit TileGrid(const AttentionParameters& p)
      : q_len(p.q_len),
        kv_len(p.kv_len),
        heads(p.by_query.plan_heads),
        lists(p.by_query.plan_batch * p.by_query.plan_heads),
        query_tiles((p.q_len + block_m - 1) / block_m),
        key_tiles((p.kv_len + block_n - 1) / block_n),
        patch_rows((query_tiles + patch_side - 1) / patch_side),
        patch_columns((key_tiles + patch_side - 1) / patch_side),
        patches(patch_rows * patch_columns),
        by_key(p.by_key.entries != nullptr) {}

  __device__ int batch_of(int list) const { return list / heads; }
  __device__ int head_of(int list) const { return list % heads; }

  /// First tile of a patch, counted over all lists.
  __device__ TilePlace first_tile(int patch) const {
    const int list = patch / patches;
    const int in_list = patch % patches;
    return {list, in_list / patch_columns * patch_side, in_list % patch_columns * patch_side};
  }
  __device__ static TilePlace tile_of_patch(const TilePlace& first, int i) {
    return {first.list, first.query_tile + i / patch_side, first.key_tile + i % patch_side};
  }

  __device__ int groups_per_list() const { return patch_rows + (by_key ? patch_columns : 0); }
  /// Groups of all lists are counted list by list, in a list those by query first.
  __device__ RowGroup group(int i) const {
    const int in_list = i % groups_per_list();
    const bool of_keys = in_list >= patch_rows;
    return {i / groups_per_list(), of_keys, of_keys ? in_list - patch_rows : in_list};
  }
  __device__ int number_of(const RowGroup& group) const {
    return group.list * groups_per_list() + (group.by_key ? patch_rows : 0) + group.number;
  }
  /// Patch i of those whose tiles the group's rows consist of, counted over all lists.
  __device__ long long patch_of_group(const RowGroup& group, int i) const {
    const int in_list = group.by_key ? i * patch_columns + group.number : group.number * patch_columns + i;
    return static_cast<long long>(group.list) * patches + in_list;
  }
  __device__ int patches_of_group(const RowGroup& group) const { return group.by_key ? patch_rows : patch_columns; }

  __device__ bool holds(const TilePlace& place) const {
    return place.query_tile < query_tiles && place.key_tile < key_tiles;
  }
  __device__ TileExtent extent(const TilePlace& place) const {
    const int first_q = place.query_tile * block_m;
    const int first_k = place.key_tile * block_n;
    return {first_q, q_len - first_q < block_m ? q_len - first_q : block_m, first_k,
            kv_len - first_k < block_n ? kv_len - first_k : block_n};
  }
};

/// Settles a tile in every list that is planned. `mask` and `unseeing` as in TileEntry, or empty_tile.
__device__ __forceinline__ void settle(const AttentionParameters& p, const TileGrid& grid, const TilePlace& place,
                                       int mask, unsigned int unseeing) {
  const long long row = static_cast<long long>(place.list) * grid.query_tiles + place.query_tile;
  p.by_query.entries[row * grid.key_tiles + place.key_tile] = TileEntry{place.key_tile, mask, unseeing};
  if (!grid.by_key) return;
  const long long column = static_cast<long long>(place.list) * grid.key_tiles + place.key_tile;
  p.by_key.entries[column * grid.query_tiles + place.query_tile] = TileEntry{place.query_tile, mask, unseeing};
}

}  // namespace flashspan_device
