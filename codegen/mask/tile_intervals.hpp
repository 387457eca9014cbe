// tile_intervals.hpp -- interval analysis: from the ranges of b, h, q, k over a tile, and the smallest and
// largest value of each looked-up tensor over the box of indices it can be asked for, decides whether a mask
// program is false everywhere (empty), true everywhere (full), or not provably either.
#pragma once

#include <cstdint>

#include "codegen/mask/bindings.hpp"
#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// Inclusive range. lo > hi never occurs.
struct Interval {
  std::int64_t lo = 0;
  std::int64_t hi = 0;
};

enum class TileClass { empty, full, partial };

/// The rows and columns of one tile (inclusive), and the sizes of the call.
struct TileBounds {
  Interval b, h, q, k;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
};

/// Largest box of tensor elements whose minimum and maximum are taken by looking at each; a larger box
/// counts as "any value". Shared with the emitted device code, so that both decide alike.
inline constexpr std::int64_t max_lookup_box = 1024;
/// Most trips of an `any` loop that the analysis follows; a longer loop counts as "maybe".
inline constexpr std::int64_t max_analysed_trips = 256;

/// Sound: `empty` and `full` are proofs; `partial` means undecided (it may still be empty or full).
/// Reads the bound tensors, so they must be in host memory.
[[nodiscard]] TileClass classify(const Program& program, const Bindings& bindings, const TileBounds& bounds);

/// Range of every node's value over *all* legal inputs (any indices below max_sequence_length, any tensor
/// contents, any scalars), used by the emitters to choose 32-bit arithmetic where it is provably exact.
/// For boolean and real nodes the entry is the full 64-bit range and means nothing.
[[nodiscard]] std::vector<Interval> value_ranges(const Program& program);
/// The same for one integer node whose operands are in `ranges`; for a loop variable the full range.
[[nodiscard]] Interval value_range(const Node& node, const std::vector<Interval>& ranges);

}  // namespace flashspan::mask
