// random_numbers.hpp -- numbers that are equal on every machine: the standard's distributions are not.
#pragma once

#include <cstdint>

namespace oracle {

class RandomNumbers {
 public:
  explicit RandomNumbers(std::uint64_t seed) : state_(seed) {}

  /// SplitMix64 (Steele, Lea, Flood 2014).
  std::uint64_t bits() {
    std::uint64_t mixed = (state_ += 0x9e3779b97f4a7c15u);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }
  /// Uniform in [low, high], both included.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  }
  /// Uniform in (0, 1).
  double uniform() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; }
  /// Standard normal (Box and Muller 1958).
  double normal();
  bool chance(double probability) { return uniform() < probability; }

 private:
  std::uint64_t state_;
};

}  // namespace oracle
