// emit_cuda_names.hpp -- how nodes, loops and constants are spelled in emitted CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/kernel/side_lookups.hpp"
#include "codegen/mask/program.hpp"

namespace flashspan::kernel {

[[nodiscard]] std::string name_of(mask::NodeId id);
[[nodiscard]] std::string loop_name(int loop);
[[nodiscard]] std::string integer_literal(std::int64_t value);
/// Hexadecimal, so that every bit survives.
[[nodiscard]] std::string real_literal(double value);

/// What stands for each lookup that is given: "row[0]", "column[2]"; "" for every other node.
[[nodiscard]] std::vector<std::string> given_names(const mask::Program& program, const SideLookups& given);
[[nodiscard]] NodeSelection selection_of(const mask::Program& program, const SideLookups& given);

}  // namespace flashspan::kernel
