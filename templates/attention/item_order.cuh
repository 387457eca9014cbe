// item_order.cuh -- in which order persistent blocks take rows of tiles, of keys or of queries.
#pragma once

namespace flashspan_device {

/// A row of tiles: a head, and a rank among its rows, of which the longest come first.
struct ItemPlace {
  int head;
  int rank;
};

/// Of item `number`, of `rows` rows of each of `heads` heads. The first ranks of all heads, `outlying` of them, come
/// before all others. Past them, heads of one section come next to each other, so that they find each other's tensors
/// in the L2 cache; within a section the longest rows come first, so that no block starts a long one last.
__device__ __forceinline__ constexpr ItemPlace place_of_item(int number, int heads, int section, int rows,
                                                             int outlying) {
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
