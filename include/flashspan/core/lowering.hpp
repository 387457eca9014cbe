// lowering.hpp -- the ways in which a kernel can apply a mask. A choice of speed, never of result.
#pragma once

#include <optional>
#include <string_view>

#pragma GCC visibility push(default)
namespace flashspan {

enum class LoweringKind {
  none,           ///< every pair is visible: no plan, no test
  row_ranges,     ///< for each query the visible keys form a few ranges; a kernel computes their ends once a row
  column_bounds,  ///< for each key the queries that see it form a few ranges; ends once a column
  bit_tiles,      ///< partial tiles are evaluated once, into bits that all heads read
  expression,     ///< partial tiles are bits of each head; where there is no room, they evaluate the program
  interpreted,    ///< the program is data: one kernel for every mask, slow, for calls that cannot wait for their own
};

[[nodiscard]] const char* to_string(LoweringKind kind);
[[nodiscard]] std::optional<LoweringKind> lowering_from_string(std::string_view text);

}  // namespace flashspan
#pragma GCC visibility pop
