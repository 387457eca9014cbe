// random_choice.hpp -- choices that random programs and data are made by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

namespace flashspan::mask::test {

using Random = std::mt19937_64;

/// lo to hi, both included.
inline std::int64_t pick(Random& random, std::int64_t lo, std::int64_t hi) {
  return std::uniform_int_distribution<std::int64_t>(lo, hi)(random);
}

/// Below `count`.
inline std::size_t pick(Random& random, std::size_t count) { return random() % count; }

inline bool chance(Random& random, int percent) { return pick(random, 1, 100) <= percent; }

}  // namespace flashspan::mask::test
