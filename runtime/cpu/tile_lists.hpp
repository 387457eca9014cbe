// tile_lists.hpp -- reading a plan: which tiles of the other side a tile visits.
#pragma once

#include <cstdint>

#include "runtime/cpu/call_sizes.hpp"

namespace flashspan::cpu {

struct VisitedTile {
  std::int64_t index = 0;
  bool partial = false;
};

/// Lists of one side of a plan. Without counts every tile is visited and full.
class TileLists {
 public:
  /// [plan rows, rows, across]
  TileLists(const void* counts, const void* tiles, std::int64_t rows, std::int64_t across)
      : counts_(static_cast<const std::int32_t*>(counts)),
        tiles_(static_cast<const std::int32_t*>(tiles)),
        rows_(rows),
        across_(across) {}

  [[nodiscard]] std::int64_t count(std::int64_t plan_row, std::int64_t row) const {
    return counts_ == nullptr ? across_ : counts_[plan_row * rows_ + row];
  }
  [[nodiscard]] VisitedTile entry(std::int64_t plan_row, std::int64_t row, std::int64_t position) const {
    if (counts_ == nullptr) return {position, false};
    const std::int32_t word = tiles_[(plan_row * rows_ + row) * across_ + position];
    return {word & 0x7fffffff, word < 0};
  }

 private:
  const std::int32_t* counts_;
  const std::int32_t* tiles_;
  std::int64_t rows_;
  std::int64_t across_;
};

}  // namespace flashspan::cpu
