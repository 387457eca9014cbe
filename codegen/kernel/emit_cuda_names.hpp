// emit_cuda_names.hpp -- how nodes, loops and constants are spelled in emitted CUDA.
#pragma once

#include <cstdint>
#include <string>

#include "codegen/mask/program.hpp"

namespace flashspan::kernel {

[[nodiscard]] std::string name_of(mask::NodeId id);
[[nodiscard]] std::string loop_name(int loop);
[[nodiscard]] std::string integer_literal(std::int64_t value);
/// Hexadecimal, so that every bit survives.
[[nodiscard]] std::string real_literal(double value);

}  // namespace flashspan::kernel
