// row_items.cuh -- items of work of the hopper kernels that are stationary over queries: rows of tiles, which one
// thread of a persistent block hands out to all others.
#pragma once

#include "attention/item_order.cuh"
#include "attention/warpgroup_work.cuh"

namespace flashspan_device {

/// One row of tiles, or a portion of one.
struct WorkItem {
  TileList list;
  int query_tile;
  int h;
  int b;
  int row;            // of tiles, counted over all heads and batches
  int first_portion;  // of the row; its number
  int portion;        // this one's number
  int portions;       // of the row
  /// Of the computing warps, those whose results are to be written after all. A hidden value row that holds NaN or
  /// infinity spoils a product, for its weight is 0 and 0 * NaN is NaN; so does a weight out of range. The spoilt
  /// result is never finite: such an item is worked on once more, carefully, its partial tiles cleaned of what is not
  /// finite and maxima looked at before weights. All others need no second look, and this is 0.
  u32 careful;

  /// By a warp: whether this item is worked on for the sake of other warps' rows. A vote, for the compiler has to know
  /// that a branch on it is the same in all lanes: what follows would else not use uniform registers.
  __device__ __forceinline__ bool is_done(int warp) const {
    return __any_sync(0xffffffffu, careful != 0 && (careful >> warp & 1u) == 0) != 0;
  }
};

// In place of an item's count, beside no_more_items: nothing this time.
constexpr int no_item = -2;

/// In shared memory.
struct ItemSlots {
  TransferBarrier full[item_slots], empty[item_slots];
  WorkItem item[item_slots];
  u32 spoilt[item_slots];  // warps for which the item has to be worked on again

  /// By one thread. `readers`: threads that give a slot back.
  __device__ __forceinline__ void init(u32 readers) {
    for (int slot = 0; slot < item_slots; ++slot) {
      full[slot].init(1);
      empty[slot].init(readers);
      spoilt[slot] = 0;
    }
  }
};

/// Of all heads and batches.
__device__ __forceinline__ int rows_of_tiles(const AttentionParameters& p) {
  return (p.q_len + block_m - 1) / block_m * p.query_heads * p.batch;
}

__device__ __forceinline__ TileList list_of_row(const AttentionParameters& p, int b, int h, int query_tile) {
  return tile_list(p.by_query, b, h, query_tile, (p.q_len + block_m - 1) / block_m, (p.kv_len + block_n - 1) / block_n);
}

/// Finds out what row of tiles `number` is.
__device__ __forceinline__ void look_up(WorkItem& item, const AttentionParameters& p, int number) {
  const int query_tiles = (p.q_len + block_m - 1) / block_m;
  const int outlying = outlying_ranks(p.by_query, query_tiles, (p.kv_len + block_n - 1) / block_n);
  const ItemPlace place = place_of_item(number, p.batch * p.query_heads, p.section_heads, query_tiles, outlying);
  const int b = place.head / p.query_heads;
  const int h = place.head - b * p.query_heads;
  int query_tile;
  if constexpr (has_plan) {
    const int plan_b = p.by_query.plan_batch == 1 ? 0 : b;
    const int plan_h = p.by_query.plan_heads == 1 ? 0 : h;
    query_tile =
        p.by_query.order[(static_cast<long long>(plan_b) * p.by_query.plan_heads + plan_h) * query_tiles + place.rank];
  } else {
    query_tile = query_tiles - 1 - place.rank;
  }
  item.b = b;
  item.h = h;
  item.query_tile = query_tile;
  item.list = list_of_row(p, b, h, query_tile);
  item.row = number;
  item.first_portion = item.portion = 0;
  item.portions = 1;
}

/// The one thread that finds work, one item ahead of the others. With a plan the blocks take items as they get free,
/// longest first; without one all items are alike, and are dealt out. A slot comes back when its item is done, and
/// tells whether it has to be done again. `look_up_item(item, number)` finds out what item `number` is.
template <typename LookUp>
__device__ __forceinline__ void hand_out_rows(const AttentionParameters& p, ItemSlots& slots, int items,
                                              const LookUp& look_up_item) {
  Ring<item_slots> slot = {0, 1};
  int number = static_cast<int>(blockIdx.x);
  int slots_without_work = 0;
  while (true) {
    slots.empty[slot.index].wait(slot.parity);
    WorkItem& item = slots.item[slot.index];
    if (slots.spoilt[slot.index] != 0) {
      item.careful = slots.spoilt[slot.index];
      slots.spoilt[slot.index] = 0;
      slots_without_work = 0;
    } else if (number < items) {
      look_up_item(item, number);
      item.careful = 0;
      // Every item is taken once, so the counter is 0 again after the last, for a call that reuses the plan.
      number = static_cast<int>(gridDim.x) +
               (has_plan ? static_cast<int>(atomicInc(p.next_item, static_cast<unsigned int>(items) - 1)) : number);
      slots_without_work = 0;
    } else {
      item.list.count = ++slots_without_work < item_slots ? no_item : no_more_items;
    }
    slots.full[slot.index].arrive();
    if (slots_without_work == item_slots) return;
    slot.advance();
  }
}

}  // namespace flashspan_device
