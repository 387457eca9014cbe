// emit_llvm.hpp -- KernelSpec to LLVM IR text for the CPU: predicate and score functions over a tile, and the
// vectorised tile arithmetic around them. Text only; LLVM itself is linked by runtime/cpu alone.
#pragma once

#include <string>
#include <vector>

#include "codegen/kernel/kernel_spec.hpp"
#include "codegen/kernel/source_text.hpp"

namespace flashspan::kernel {

/// Constant of the module that the compiler of the host sets to its fp32 lanes per register: it decides the register
/// blocking alone. The text itself is the same for every host.
inline constexpr const char* host_vector_lanes_constant = "host_vector_lanes";

/// Names of the functions that the module of `spec` defines, see runtime/cpu/tile_functions.hpp.
[[nodiscard]] std::vector<std::string> llvm_entry_points(const KernelSpec& spec);

/// The whole module as one text.
/// Error: unsupported if the tile is not multiples of 16; programs that do not parse are internal errors.
[[nodiscard]] Result<SourceText> emit_llvm(const KernelSpec& spec);

}  // namespace flashspan::kernel
