// evaluate.cpp -- see evaluate.hpp.
#include "codegen/mask/evaluate.hpp"

#include <algorithm>
#include <array>

#include "codegen/mask/strip_evaluator.hpp"

namespace flashspan::mask {
namespace {

constexpr std::int64_t strip_width = 128;

StripEvaluator evaluated_at(const Program& program, const Bindings& bindings, const Point& point) {
  StripEvaluator evaluator(program, bindings, 1);
  evaluator.set_head(point.b, point.h, point.q_len, point.kv_len);
  evaluator.set_query(point.q);
  evaluator.evaluate(point.k, 1, std::array{point.score});
  return evaluator;
}

std::int64_t count_visible(const Program& program, const Bindings& bindings, const TileBounds& bounds) {
  const auto width = static_cast<int>(std::min(bounds.k.hi - bounds.k.lo + 1, strip_width));
  StripEvaluator evaluator(program, bindings, width);
  evaluator.set_head(bounds.b.lo, bounds.h.lo, bounds.q_len, bounds.kv_len);
  std::int64_t visible = 0;
  for (std::int64_t q = bounds.q.lo; q <= bounds.q.hi; ++q) {
    evaluator.set_query(q);
    for (std::int64_t k = bounds.k.lo; k <= bounds.k.hi; k += width) {
      const auto count = static_cast<int>(std::min<std::int64_t>(width, bounds.k.hi - k + 1));
      evaluator.evaluate(k, count);
      for (int place = 0; place < count; ++place) visible += evaluator.visible(place) ? 1 : 0;
    }
  }
  return visible;
}

}  // namespace

bool evaluate_mask(const Program& program, const Bindings& bindings, const Point& point) {
  return evaluated_at(program, bindings, point).visible(0);
}

float evaluate_score(const Program& program, const Bindings& bindings, const Point& point) {
  return evaluated_at(program, bindings, point).score(0);
}

TileClass classify_exactly(const Program& program, const Bindings& bindings, const TileBounds& bounds,
                           std::int64_t* visible) {
  const std::int64_t pairs = (bounds.q.hi - bounds.q.lo + 1) * (bounds.k.hi - bounds.k.lo + 1);
  const TileClass decided = classify(program, bindings, bounds);
  if (decided == TileClass::empty) *visible = 0;
  if (decided == TileClass::full) *visible = pairs;
  if (decided == TileClass::partial) *visible = count_visible(program, bindings, bounds);
  if (*visible == 0) return TileClass::empty;
  return *visible == pairs ? TileClass::full : TileClass::partial;
}

}  // namespace flashspan::mask
