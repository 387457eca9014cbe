// program_code.hpp -- a mask program as instructions of templates/mask/interpreter.cuh.
#pragma once

#include "codegen/mask/program.hpp"
#include "flashspan/core/error.hpp"
#include "templates/attention/parameters.cuh"

namespace flashspan::cuda {

/// Error: unsupported, for a program of more instructions, or of more values at a time, than the interpreter has room
/// for.
[[nodiscard]] Result<flashspan_device::ProgramCode> program_code(const mask::Program& program);

}  // namespace flashspan::cuda
