#include "codegen/kernel/emit_llvm.hpp"

#include "codegen/kernel/emit_llvm_parts.hpp"
#include "codegen/kernel/emit_llvm_writer.hpp"
#include "codegen/mask/score_derivative.hpp"

namespace flashspan::kernel {
namespace {

// 512-bit registers are asked for by name: some CPUs default to 256.
constexpr const char* module_head =
    "; One Flashspan module; the functions are described in runtime/cpu/tile_functions.hpp.\n"
    "@zero_element = internal constant i64 0, align 8\n";
constexpr const char* module_tail =
    "attributes #0 = { nounwind \"prefer-vector-width\"=\"512\" \"min-legal-vector-width\"=\"512\" }\n";

bool emits_mask(const KernelSpec& spec) {
  return spec.lowering != mask::LoweringKind::none && spec.lowering != mask::LoweringKind::interpreted;
}

}  // namespace

std::vector<std::string> llvm_entry_points(const KernelSpec& spec) {
  std::vector<std::string> names{"gemm", "load_rows", "store_rows", "transpose_rows", "nonfinite_rows"};
  if (emits_mask(spec)) names.emplace_back("mask_tile");
  if (!spec.score.empty()) names.emplace_back("score_tile");
  switch (spec.direction) {
    case Direction::forward:
      names.insert(names.end(), {"softmax_full", "softmax_masked", "rescale_rows"});
      break;
    case Direction::backward:
      names.insert(names.end(), {"gradient_full", "gradient_masked", "row_dots"});
      if (!spec.score.empty()) names.emplace_back("score_derivative_tile");
      if (!spec.score_gradients.empty()) names.insert(names.end(), {"lookup_slope_tiles", "lookup_element_tiles"});
      break;
  }
  return names;
}

Result<SourceText> emit_llvm(const KernelSpec& spec) {
  const auto whole_vectors = [](int size) { return size > 0 && size % ir_lanes == 0; };
  if (!whole_vectors(spec.tile.block_m) || !whole_vectors(spec.tile.block_n)) {
    return Error{ErrorCode::unsupported, "tile", concat(spec.tile.block_m, "x", spec.tile.block_n),
                 "multiples of 16 on the CPU", ""};
  }
  SourceText source;
  source.language = Language::llvm_ir;
  std::string text = concat(module_head, "@", host_vector_lanes_constant, " = internal constant i32 16, align 4\n\n",
                            emit_llvm_elementary_functions(), emit_llvm_gemm(), emit_llvm_pack(spec));
  if (emits_mask(spec)) {
    const Result<mask::Program> program = mask::Program::from_signature(spec.mask);
    if (!program) return program.error();
    text += emit_llvm_mask(*program, spec.tile);
  }
  if (!spec.score.empty()) {
    const Result<mask::Program> program = mask::Program::from_signature(spec.score);
    if (!program) return program.error();
    text += emit_llvm_score("score_tile", *program, spec.tile);
    if (spec.direction == Direction::backward) {
      text += emit_llvm_score("score_derivative_tile", mask::derivative_by_score(*program), spec.tile);
      if (!spec.score_gradients.empty()) {
        text += emit_llvm_score_lookups(score_lookups(*program, spec.score_gradients), spec.tile);
      }
    }
  }
  text += spec.direction == Direction::forward ? emit_llvm_softmax(spec.tile)
                                               : emit_llvm_gradient(spec.tile, !spec.score.empty());
  source.programs.push_back({"", text + module_tail, llvm_entry_points(spec)});
  return source;
}

}  // namespace flashspan::kernel
