// unroll_loops.hpp -- `any` loops over a few constant values, written out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// The same program, declarations included, where every `any` over a constant range of at most `most_trips` values is
/// a chain of `|`, one body for each value; simplified. Loops that are met when `most_copies` nodes have been written
/// stay as they are.
[[nodiscard]] Program unroll_loops(const Program& program, std::int64_t most_trips, std::size_t most_copies);

}  // namespace flashspan::mask
