// launch_arguments.hpp -- a call's tensors, scalars and plan as the by-value arguments of the kernels.
#pragma once

#include "flashspan/core/error.hpp"
#include "runtime/backend/backend.hpp"
#include "runtime/cuda/workspace_layout.hpp"
#include "templates/attention/parameters.cuh"
#include "templates/attention/score_gradient_arguments.cuh"

namespace flashspan::cuda {

/// Parameters of every kernel of a call, the plan and delta in args.workspace. Sizes must fit 32 bits (launch_grids()
/// checks).
[[nodiscard]] flashspan_device::AttentionParameters attention_parameters(const kernel::KernelSpec& spec,
                                                                         const backend::LaunchArgs& args,
                                                                         const PlanSize& size,
                                                                         const WorkspaceLayout& layout);

/// Data of one program, in the order of its declarations; zeros for no program. `role` ("mask", "score") is the
/// argument that errors name.
/// Error: unsupported for more tensors or scalars than a kernel takes, or an extent past 32 bits; bad_argument if the
/// bindings are not those of the program.
[[nodiscard]] Result<flashspan_device::ProgramArguments> program_arguments(const char* role,
                                                                           const mask::Program* program,
                                                                           const mask::Bindings* bindings);

/// The results of a call's score gradients, their sums in args.workspace; none if the call has none. The run is `add`.
[[nodiscard]] flashspan_device::ScoreGradientArguments score_gradient_arguments(const backend::LaunchArgs& args,
                                                                                const WorkspaceLayout& layout);
/// Where plan_program puts the code of an interpreted mask: ProgramArguments::code.
[[nodiscard]] flashspan_device::ProgramCode* code_place(void* workspace, const WorkspaceLayout& layout);

}  // namespace flashspan::cuda
