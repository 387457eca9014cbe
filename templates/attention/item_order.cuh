// item_order.cuh -- in which order persistent blocks take rows of tiles, of keys or of queries.
#pragma once

#include "attention/work.cuh"

namespace flashspan_device {

/// A row of tiles: a head, and a rank among its rows, of which the longest come first.
struct ItemPlace {
  int head;
  int rank;
};

/// So many ranks of all heads come before all others, because there are rows among them that outweigh the rest: keys
/// that every query sees, beside a window, say. Taken with the rest of a late section, one of those would keep all
/// blocks waiting for its end. By the plan's first list, as all blocks have to find the same.
__device__ __forceinline__ int outlying_ranks(const TilePlanArguments& plan, int rows, int across) {
  if constexpr (!has_plan) return 0;
  const int ranks = (rows + 31) / 32;
  if (ranks == rows) return 0;
  const int longest = tile_list(plan, 0, 0, plan.order[0], rows, across).count;
  const int ordinary = tile_list(plan, 0, 0, plan.order[ranks], rows, across).count;
  return longest > 2 * ordinary ? ranks : 0;
}

/// Of item `number`. Past outlying ranks, heads of one section come next to each other, so that they find each other's
/// tensors in the L2 cache; within a section the longest rows come first, so that no block starts a long one last.
__device__ __forceinline__ ItemPlace place_of_item(int number, int heads, int section, int rows, int outlying) {
  if (number < outlying * heads) return {number % heads, number / heads};
  const int rest = number - outlying * heads;
  const int per_section = section * (rows - outlying);
  const int first_head = rest / per_section * section;
  const int heads_here = heads - first_head < section ? heads - first_head : section;
  const int within = rest % per_section;
  const int rank = within / heads_here;
  return {first_head + within - rank * heads_here, outlying + rank};
}

}  // namespace flashspan_device
