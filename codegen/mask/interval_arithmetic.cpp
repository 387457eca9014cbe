// interval_arithmetic.cpp -- see interval_arithmetic.hpp.
#include "codegen/mask/interval_arithmetic.hpp"

#include <algorithm>
#include <optional>

#include "codegen/mask/arithmetic.hpp"

namespace flashspan::mask {
namespace {

constexpr std::int64_t smallest = std::numeric_limits<std::int64_t>::min();

bool contains(Interval interval, std::int64_t value) { return interval.lo <= value && value <= interval.hi; }

void join(std::optional<Interval>& all, Interval part) { all = all ? hull(*all, part) : part; }

// Divisors of one sign. For a fixed divisor the quotient grows (or falls) with the dividend, for a fixed dividend
// it goes one way with the divisor; so the extremes are at corners.
Interval divide_by_one_sign(Interval a, Interval b) {
  const auto [lo, hi] = std::minmax(
      {floor_divide(a.lo, b.lo), floor_divide(a.lo, b.hi), floor_divide(a.hi, b.lo), floor_divide(a.hi, b.hi)});
  return {lo, hi};
}

Interval modulo_by_positive(Interval a, Interval b) {
  if (b.lo == b.hi && floor_divide(a.lo, b.lo) == floor_divide(a.hi, b.lo)) {
    return {floor_modulo(a.lo, b.lo), floor_modulo(a.hi, b.lo)};
  }
  if (a.lo >= 0 && a.hi < b.lo) return a;
  return {0, a.lo >= 0 ? std::min(a.hi, b.hi - 1) : b.hi - 1};
}

Interval modulo_by_negative(Interval a, Interval b) {
  if (b.lo == b.hi && floor_divide(a.lo, b.lo) == floor_divide(a.hi, b.lo)) {
    return {floor_modulo(a.lo, b.lo), floor_modulo(a.hi, b.lo)};
  }
  if (a.hi <= 0 && a.lo > b.hi) return a;
  return {a.hi <= 0 ? std::max(a.lo, b.lo + 1) : b.lo + 1, 0};
}

}  // namespace

Interval hull(Interval a, Interval b) { return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)}; }

Interval interval_add(Interval a, Interval b) {
  Interval result;
  if (__builtin_add_overflow(a.lo, b.lo, &result.lo) || __builtin_add_overflow(a.hi, b.hi, &result.hi)) {
    return whole_range;
  }
  return result;
}

Interval interval_subtract(Interval a, Interval b) {
  Interval result;
  if (__builtin_sub_overflow(a.lo, b.hi, &result.lo) || __builtin_sub_overflow(a.hi, b.lo, &result.hi)) {
    return whole_range;
  }
  return result;
}

Interval interval_multiply(Interval a, Interval b) {
  std::int64_t corners[4];
  if (__builtin_mul_overflow(a.lo, b.lo, &corners[0]) || __builtin_mul_overflow(a.lo, b.hi, &corners[1]) ||
      __builtin_mul_overflow(a.hi, b.lo, &corners[2]) || __builtin_mul_overflow(a.hi, b.hi, &corners[3])) {
    return whole_range;
  }
  const auto [lo, hi] = std::minmax_element(corners, corners + 4);
  return {*lo, *hi};
}

Interval interval_minimum(Interval a, Interval b) { return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)}; }

Interval interval_maximum(Interval a, Interval b) { return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)}; }

Interval interval_negate(Interval a) { return a.lo == smallest ? whole_range : Interval{-a.hi, -a.lo}; }

Interval interval_absolute(Interval a) {
  if (a.lo == smallest) return whole_range;
  if (a.lo >= 0) return a;
  if (a.hi <= 0) return {-a.hi, -a.lo};
  return {0, std::max(-a.lo, a.hi)};
}

Interval interval_floor_divide(Interval a, Interval b) {
  if (a.lo == smallest && contains(b, -1)) return whole_range;  // the one quotient that wraps
  std::optional<Interval> all;
  if (contains(b, 0)) join(all, {0, 0});
  if (b.hi > 0) join(all, divide_by_one_sign(a, {std::max<std::int64_t>(b.lo, 1), b.hi}));
  if (b.lo < 0) join(all, divide_by_one_sign(a, {b.lo, std::min<std::int64_t>(b.hi, -1)}));
  return *all;
}

Interval interval_modulo(Interval a, Interval b) {
  std::optional<Interval> all;
  if (contains(b, 0)) join(all, {0, 0});
  if (b.hi > 0) join(all, modulo_by_positive(a, {std::max<std::int64_t>(b.lo, 1), b.hi}));
  if (b.lo < 0) join(all, modulo_by_negative(a, {b.lo, std::min<std::int64_t>(b.hi, -1)}));
  return *all;
}

Interval interval_of(Op op, Interval a, Interval b) {
  switch (op) {
    case Op::add:
      return interval_add(a, b);
    case Op::subtract:
      return interval_subtract(a, b);
    case Op::multiply:
      return interval_multiply(a, b);
    case Op::minimum:
      return interval_minimum(a, b);
    case Op::maximum:
      return interval_maximum(a, b);
    case Op::negate:
      return interval_negate(a);
    case Op::absolute:
      return interval_absolute(a);
    case Op::floor_divide:
      return interval_floor_divide(a, b);
    case Op::modulo:
      return interval_modulo(a, b);
    case Op::integer_constant:
    case Op::real_constant:
    case Op::boolean_constant:
    case Op::variable:
    case Op::scalar:
    case Op::loop_variable:
    case Op::lookup:
    case Op::divide:
    case Op::tanh:
    case Op::exp:
    case Op::log:
    case Op::sqrt:
    case Op::to_real:
    case Op::select:
    case Op::less:
    case Op::less_equal:
    case Op::equal:
    case Op::not_equal:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not:
    case Op::any:
      break;
  }
  return whole_range;
}

}  // namespace flashspan::mask
