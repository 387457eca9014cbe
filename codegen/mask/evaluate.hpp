// evaluate.hpp -- direct evaluation of a program at one point, on the host. Slow; for pictures, explanations
// and for settling tiles that the interval analysis leaves open when nothing is compiled.
#pragma once

#include "codegen/mask/bindings.hpp"
#include "codegen/mask/tile_intervals.hpp"

namespace flashspan::mask {

/// One (batch, head, query, key) and the sizes of the call; `score` only for score programs.
struct Point {
  std::int64_t b = 0, h = 0, q = 0, k = 0;
  std::int64_t q_len = 0, kv_len = 0;
  float score = 0;
};

[[nodiscard]] bool evaluate_mask(const Program& program, const Bindings& bindings, const Point& point);
[[nodiscard]] float evaluate_score(const Program& program, const Bindings& bindings, const Point& point);

/// classify(), then exact evaluation of what it leaves open. `visible` receives the number of visible pairs
/// in the tile. Bounds must hold a single b and a single h.
[[nodiscard]] TileClass classify_exactly(const Program& program, const Bindings& bindings, const TileBounds& bounds,
                                         std::int64_t* visible);

}  // namespace flashspan::mask
