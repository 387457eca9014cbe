// emit_cuda.hpp -- KernelSpec to CUDA C++: the two generated headers (kernel_spec.cuh, mask_program.cuh) and the
// main file that includes the templates of its direction.
#pragma once

#include "codegen/kernel/kernel_spec.hpp"
#include "codegen/kernel/source_text.hpp"

namespace flashspan::kernel {

/// Entry points. Every module defines plan_tiles (unless the lowering is `none`) and:
///   forward:  attention_forward
///   backward: attention_backward_delta, attention_backward_dq, attention_backward_dkdv
inline constexpr const char* entry_plan_tiles = "plan_tiles";
inline constexpr const char* entry_forward = "attention_forward";
inline constexpr const char* entry_backward_delta = "attention_backward_delta";
inline constexpr const char* entry_backward_dq = "attention_backward_dq";
inline constexpr const char* entry_backward_dkdv = "attention_backward_dkdv";

/// Error: internal only (a spec whose programs do not parse).
[[nodiscard]] Result<SourceText> emit_cuda(const KernelSpec& spec);

/// Text of generated/mask_program.cuh for a mask and an optional score program: a struct MaskProgram with
/// visible(), classify(), score() and score_gradient(); without a score program the last two are the identity and 1.
[[nodiscard]] std::string emit_mask_program(const mask::Program& mask, const mask::Program* score);

}  // namespace flashspan::kernel
