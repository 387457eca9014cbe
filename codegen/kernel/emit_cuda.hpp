// emit_cuda.hpp -- KernelSpec to CUDA C++: the two generated headers (kernel_spec.cuh, mask_program.cuh) and the
// programs that include the templates of its direction and of the planner.
#pragma once

#include "codegen/kernel/kernel_spec.hpp"
#include "codegen/kernel/source_text.hpp"
#include "codegen/mask/visible_ranges.hpp"

namespace flashspan::kernel {

/// Entry points. The first program defines
///   forward:  attention_forward
///   backward: attention_backward_delta, attention_backward_sink; mma: attention_backward_dq,
///             attention_backward_dkdv; hopper: attention_backward_tiles, attention_backward_query_gradient;
///             with score gradients: attention_backward_score_clear, _sum and _round
/// and the second, which there is unless the lowering is `none`, plan_tiles, and plan_program if it is
/// `interpreted`. Apart, they are compiled at the same time: NVRTC compiles a program in one thread.
inline constexpr const char* entry_plan_program = "plan_program";
inline constexpr const char* entry_plan_tiles = "plan_tiles";
inline constexpr const char* entry_forward = "attention_forward";
inline constexpr const char* entry_backward_delta = "attention_backward_delta";
inline constexpr const char* entry_backward_sink = "attention_backward_sink";
inline constexpr const char* entry_backward_dq = "attention_backward_dq";
inline constexpr const char* entry_backward_dkdv = "attention_backward_dkdv";
inline constexpr const char* entry_backward_tiles = "attention_backward_tiles";
inline constexpr const char* entry_backward_query_gradient = "attention_backward_query_gradient";

inline constexpr const char* entry_backward_score_clear = "attention_backward_score_clear";
inline constexpr const char* entry_backward_score_sum = "attention_backward_score_sum";
inline constexpr const char* entry_backward_score_round = "attention_backward_score_round";

/// Error: internal only (a spec whose programs do not parse, or whose mask has not the ranges of its lowering).
[[nodiscard]] Result<SourceText> emit_cuda(const KernelSpec& spec);

/// The mask's ranges that a kernel wants to ask for; null: none.
struct EmittedRanges {
  const mask::VisibleRanges* rows = nullptr;     ///< of keys, for a query
  const mask::VisibleRanges* columns = nullptr;  ///< of queries, for a key
};

/// Text of generated/mask_program.cuh for a mask and an optional score program: a struct MaskProgram with
/// visible(), classify(), score() and score_gradient(), the last two without a score program the identity and 1; and
/// ranges_of_row() and ranges_of_column(), which give one empty range where there are none to ask for. What SideLookups
/// names is looked up by look_up_row() and look_up_column(), or analyse_row() and analyse_column(), and then handed to
/// visible() or classify().
[[nodiscard]] std::string emit_mask_program(const mask::Program& mask, const mask::Program* score,
                                            const EmittedRanges& ranges = {});

}  // namespace flashspan::kernel
