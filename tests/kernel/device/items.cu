// The order in which persistent blocks take rows of tiles.
#include "attention/item_order.cuh"
#include "check.cuh"

using namespace flashspan_device;

constexpr int most_rows = 40;

/// Whether every row of every head is an item once, none of a rank that is not outlying comes before one that is, and
/// the ranks of a head come in their order.
__device__ constexpr bool takes_every_row_once(int heads, int section, int rows, int outlying) {
  int next_rank[8] = {};
  for (int number = 0; number < heads * rows; ++number) {
    const ItemPlace place = place_of_item(number, heads, section, rows, outlying);
    if (place.head < 0 || place.head >= heads || place.rank != next_rank[place.head]) return false;
    if (number < heads * outlying && place.rank >= outlying) return false;
    ++next_rank[place.head];
  }
  for (int head = 0; head < heads; ++head) {
    if (next_rank[head] != rows) return false;
  }
  return true;
}

/// Whether a section's rows of one rank come next to each other.
__device__ constexpr bool keeps_sections_together(int heads, int section, int rows, int outlying) {
  for (int number = heads * outlying + 1; number < heads * rows; ++number) {
    const ItemPlace before = place_of_item(number - 1, heads, section, rows, outlying);
    const ItemPlace place = place_of_item(number, heads, section, rows, outlying);
    const bool same_section = before.head / section == place.head / section;
    if (same_section ? place.rank < before.rank : before.rank != rows - 1) return false;
  }
  return true;
}

// Checked where there is no GPU, too.
static_assert(takes_every_row_once(1, 1, 1, 0) && takes_every_row_once(5, 2, 7, 0) &&
              takes_every_row_once(5, 2, 7, 1) && takes_every_row_once(4, 8, 40, 2) &&
              takes_every_row_once(8, 3, 33, 2));
static_assert(keeps_sections_together(5, 2, 7, 0) && keeps_sections_together(5, 2, 7, 1) &&
              keeps_sections_together(4, 8, 40, 2) && keeps_sections_together(8, 3, 33, 2));

extern "C" __global__ void attention_forward(Checks* checks) {
  for (int i = static_cast<int>(threadIdx.x); i < 8 * 4 * most_rows; i += static_cast<int>(blockDim.x)) {
    const int heads = 1 + i % 8;
    const int section = 1 + i / 8 % 4;
    const int rows = 1 + i / 32;
    const int outlying = rows == 1 ? 0 : (rows + 31) / 32;
    EXPECT(takes_every_row_once(heads, section, rows, 0));
    EXPECT(takes_every_row_once(heads, section, rows, outlying));
    EXPECT(keeps_sections_together(heads, section, rows, outlying));
  }
}
