// interval_arithmetic.hpp -- the smallest simple interval that holds every result of an integer operation whose
// operands lie in given intervals. Where a result may wrap, the answer is the whole range.
#pragma once

#include <limits>

#include "codegen/mask/tile_intervals.hpp"

namespace flashspan::mask {

inline constexpr Interval whole_range{.lo = std::numeric_limits<std::int64_t>::min(),
                                      .hi = std::numeric_limits<std::int64_t>::max()};

/// Smallest interval that holds both.
[[nodiscard]] Interval hull(Interval a, Interval b);

[[nodiscard]] Interval interval_add(Interval a, Interval b);
[[nodiscard]] Interval interval_subtract(Interval a, Interval b);
[[nodiscard]] Interval interval_multiply(Interval a, Interval b);
[[nodiscard]] Interval interval_minimum(Interval a, Interval b);
[[nodiscard]] Interval interval_maximum(Interval a, Interval b);
[[nodiscard]] Interval interval_negate(Interval a);
[[nodiscard]] Interval interval_absolute(Interval a);
/// Corners of a with the positive part and with the negative part of b; 0 joins if b may be 0.
[[nodiscard]] Interval interval_floor_divide(Interval a, Interval b);
/// Exact if b is one value and a stays between two multiples of it, or if a lies in [0, b) or (b, 0] for every b;
/// else from 0 to the largest possible remainder.
[[nodiscard]] Interval interval_modulo(Interval a, Interval b);

/// The operation above that belongs to `op`, which gives an integer from one or two integers; `b` is not read
/// for one. The whole range for every other op.
[[nodiscard]] Interval interval_of(Op op, Interval a, Interval b);

}  // namespace flashspan::mask
