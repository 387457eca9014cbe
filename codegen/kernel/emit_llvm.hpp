// emit_llvm.hpp -- KernelSpec to LLVM IR text for the CPU: predicate and score functions over a tile, and the
// vectorised tile arithmetic around them. Text only; LLVM itself is linked by runtime/cpu alone.
#pragma once

#include "codegen/kernel/kernel_spec.hpp"
#include "codegen/kernel/source_text.hpp"

namespace flashspan::kernel {

/// The function table that the emitted module defines is documented in runtime/cpu/tile_functions.hpp.
[[nodiscard]] Result<SourceText> emit_llvm(const KernelSpec& spec);

}  // namespace flashspan::kernel
