// emulated_plan.hpp -- the planner alone on emulated kernels, and what it leaves in the workspace.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "codegen/mask/bindings.hpp"
#include "codegen/mask/program.hpp"
#include "runtime/cuda/workspace_layout.hpp"
#include "templates/attention/parameters.cuh"
#include "tests/kernel/emulator/emulated_kernel.hpp"

namespace flashspan::test {

/// The lists of one side of a plan.
struct EmulatedLists {
  std::vector<int> counts;
  std::vector<flashspan_device::TileEntry> entries;
  std::vector<int> order;
  long long rows = 0, across = 0, lists = 0;
};

struct EmulatedPlan {
  EmulatedLists by_query;
  EmulatedLists by_key;              ///< of a backward
  std::vector<unsigned> query_bits;  ///< of a forward, and of a backward in two passes
  std::vector<unsigned> key_bits;    ///< of a backward
  int bit_slots = 0;
  unsigned next_item = ~0U;
};

/// Copies the plan out of the workspace that `parameters` point into.
[[nodiscard]] EmulatedPlan take_plan(const flashspan_device::AttentionParameters& parameters,
                                     const cuda::PlanSize& size, const kernel::KernelSpec& spec);

struct PlanRequest {
  Direction direction = Direction::forward;
  TileConfig tile;
  AttentionShape shape;
  const mask::Program* program = nullptr;
  const mask::Bindings* bindings = nullptr;
  std::optional<int> bit_slots = std::nullopt;  ///< fewer than the workspace has
  bool two_passes = false;                      ///< as in KernelSpec
  BlockOrder order = BlockOrder::first_first;
  std::byte held{0xff};  ///< every byte of the workspace
  int times = 1;         ///< so often, in one workspace
};
/// Plans, with bits. Error: whatever went wrong, as text in `detail`.
[[nodiscard]] Result<EmulatedPlan> plan_emulated(const PlanRequest& request);

}  // namespace flashspan::test
