// visible_ranges.hpp -- whether a mask, for a fixed query, shows a few ranges of keys (or for a fixed key is seen by a
// few ranges of queries), and the ends of these ranges as integer expressions without that index. Kernels then compare
// with ends that they compute once a row or once a column, and never evaluate the mask.
#pragma once

#include <string>
#include <vector>

#include "codegen/mask/index_set.hpp"
#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// Most ranges that a derivation may come to.
inline constexpr std::size_t max_visible_ranges = 3;

/// The mask rewritten: true where the axis index is in one of the ranges.
struct VisibleRanges {
  Program program;  ///< declarations as in the mask
  /// Ends are nodes of `program` that do not depend on the axis; they may lie outside of [0, length), and a range
  /// whose end is not behind its beginning is empty. Ranges may overlap. 1 to max_visible_ranges.
  std::vector<IndexRange> ranges;
};

struct RangeDerivation {
  bool found = false;
  VisibleRanges visible;  ///< if found
  std::string obstacle;   ///< if not: why not, e.g. "doc[k] is looked up by k"
};

/// Exact for every shape, data and scalar, wrapping integers included; what cannot be proved to be, is not derived.
/// `axis` is k (ranges of keys for each query) or q (ranges of queries for each key).
[[nodiscard]] RangeDerivation derive_visible_ranges(const Program& mask, Variable axis);

}  // namespace flashspan::mask
