// emulated_attention.hpp -- a whole attention call on emulated kernels: planner and kernels as the CUDA back end would
// launch them, on tensors in host memory.
#pragma once

#include <vector>

#include "codegen/mask/bindings.hpp"
#include "tests/cuda/kernel_specs.hpp"
#include "tests/kernel/emulator/emulated_kernel.hpp"
#include "tests/kernel/emulator/emulated_plan.hpp"
#include "tests/oracle/attention.hpp"

namespace flashspan::test {

/// Of one call.
struct Sizes {
  oracle::Index batch = 1, query_heads = 1, kv_heads = 1, q_len = 64, kv_len = 64, head_dim = 64, head_dim_v = 64;
};

/// One call: kernels of `spec`, with `direction` left to the functions below.
struct EmulatedCall {
  cuda::SpecRequest spec;
  mask::Bindings mask_bindings;
  mask::Bindings score_bindings;
  oracle::Problem problem;
  std::vector<std::vector<oracle::Index>> score_gradients;  ///< shapes of those of spec.score_gradients, in that order
  bool deterministic = false;                               ///< for score gradients alone
};

struct EmulatedRun {
  oracle::Answer answer;
  EmulatedPlan forward_plan, backward_plan;
  TileConfig forward_tile, backward_tile;
  long long bank_conflicts = 0;
};

/// Forward, and backward if the problem has an incoming gradient. Memory that results are written to starts as NaN and
/// is surrounded by more, which must stay as it is. Error: whatever went wrong, as text in `detail`.
[[nodiscard]] Result<EmulatedRun> run_emulated(EmulatedCall call);

}  // namespace flashspan::test
