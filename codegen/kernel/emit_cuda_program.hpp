// emit_cuda_program.hpp -- a mask or score Program as the statements of a CUDA function body, in two readings: values
// at one point, and intervals over a tile.
#pragma once

#include <string>

#include "codegen/mask/program.hpp"

namespace flashspan::kernel {

/// Statements that compute the program at (b, h, q, k) and return it, one local variable a node. Integers are 32 bit
/// where value_ranges() proves that exact, else 64 bit and wrapping.
[[nodiscard]] std::string emit_values(const mask::Program& program);
/// Statements that return the TileClass of a tile given as Intervals, the reading of codegen/mask/tile_intervals.cpp.
[[nodiscard]] std::string emit_intervals(const mask::Program& program);
/// `text` as the inside of a C string literal on one line.
[[nodiscard]] std::string escaped(const std::string& text);

}  // namespace flashspan::kernel
