// emit_cuda_program.hpp -- a mask or score Program as the statements of a CUDA function body, in two readings: values
// at one point, and intervals over a tile.
#pragma once

#include <string>
#include <vector>

#include "codegen/kernel/side_lookups.hpp"
#include "codegen/mask/program.hpp"
#include "codegen/mask/visible_ranges.hpp"

namespace flashspan::kernel {

/// Statements that compute the program at (b, h, q, k) and return it, one local variable a node. Integers are 32 bit
/// where value_ranges() proves that exact, else 64 bit and wrapping. The values of `given` lookups are read from the
/// arrays `row` and `column`, in bits.
[[nodiscard]] std::string emit_values(const mask::Program& program, const SideLookups& given);
/// Statements that write the values of one side's lookups into the array `values`.
[[nodiscard]] std::string emit_lookup_values(const mask::Program& program, const std::vector<mask::NodeId>& lookups);
/// Statements that return the Indices of the lookup that is the program's root.
[[nodiscard]] std::string emit_lookup_indices(const mask::Program& program);
/// Statements that return the TileClass of a tile given as Intervals, the reading of codegen/mask/tile_intervals.cpp.
/// The ranges of `given` lookups are read from the arrays `row` and `column`.
[[nodiscard]] std::string emit_intervals(const mask::Program& program, const SideLookups& given);
/// Statements that write the ranges of one side's integer lookups into the array `ranges`.
[[nodiscard]] std::string emit_lookup_ranges(const mask::Program& program, const std::vector<mask::NodeId>& lookups);
/// True if emit_intervals() looks into tensors beyond the given lookups, which takes all lanes of a warp.
[[nodiscard]] bool looks_up_by_tile(const mask::Program& program, const SideLookups& given);
/// Statements that set begin[i] and end[i] to the i-th range, cut to [0, length) by cut_range() of
/// mask/index_range.cuh; `length` is an expression.
[[nodiscard]] std::string emit_ranges(const mask::VisibleRanges& visible, const std::string& length);
/// `text` as the inside of a C string literal on one line.
[[nodiscard]] std::string escaped(const std::string& text);

}  // namespace flashspan::kernel
