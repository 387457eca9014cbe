// emit_llvm_parts.hpp -- the pieces of the CPU module, each a text of whole LLVM functions. What every function takes
// is documented in runtime/cpu/tile_functions.hpp.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "codegen/kernel/emit_llvm_writer.hpp"
#include "codegen/kernel/kernel_spec.hpp"
#include "codegen/kernel/score_lookups.hpp"
#include "codegen/mask/program.hpp"

namespace flashspan::kernel {

/// gemm: the register-blocked matrix product. The constant @host_vector_lanes decides the blocking, never a result.
[[nodiscard]] std::string emit_llvm_gemm();
/// exp_probability, exp_real, tanh_real: internal vector functions that other parts call.
[[nodiscard]] std::string emit_llvm_elementary_functions();
/// softmax_full, softmax_masked, rescale_rows (forward).
[[nodiscard]] std::string emit_llvm_softmax(const TileConfig& tile);
/// gradient_full, gradient_masked, row_dots (backward); `with_derivative`: the score program's derivative is applied.
[[nodiscard]] std::string emit_llvm_gradient(const TileConfig& tile, bool with_derivative);
/// Replaces 16 vectors, the rows of a block, by its columns.
void transpose_block(IrWriter& ir, std::array<std::string, ir_lanes>& rows);
/// load_rows, store_rows, transpose_rows, nonfinite_rows.
[[nodiscard]] std::string emit_llvm_pack(const KernelSpec& spec);
/// mask_tile: one bit per pair.
[[nodiscard]] std::string emit_llvm_mask(const mask::Program& mask, const TileConfig& tile);
/// A function `name` that maps the scores of a tile through a real program.
[[nodiscard]] std::string emit_llvm_score(const std::string& name, const mask::Program& score, const TileConfig& tile);
/// lookup_slope_tiles, lookup_element_tiles: of every lookup whose tensor takes a gradient.
[[nodiscard]] std::string emit_llvm_score_lookups(const std::vector<ScoreLookup>& lookups, const TileConfig& tile);

}  // namespace flashspan::kernel
