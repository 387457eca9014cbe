// tile_config.hpp -- which tile a kernel uses: a table from (direction, target, head dims) to TileConfig. What else it
// could use, and what each takes, is in resource_model.hpp.
#pragma once

#include <cstdint>
#include <optional>

#include "codegen/kernel/kernel_spec.hpp"

namespace flashspan::kernel {

/// Head dims are padded to a multiple of this inside the kernels; one rule for all of them.
inline constexpr int head_dim_granule = 16;
[[nodiscard]] constexpr int padded_head_dim(int head_dim) {
  return (head_dim + head_dim_granule - 1) / head_dim_granule * head_dim_granule;
}
/// Rows of a tile that one warp multiplies.
inline constexpr int rows_per_warp = 16;
inline constexpr int smallest_head_dim = 16;
inline constexpr int largest_head_dim = 256;
inline constexpr int head_dim_step = 8;

/// Bytes of shared memory that one block may ask for on `arch`, as in arch_limits().
[[nodiscard]] std::int64_t shared_memory_limit(Arch arch);
/// Bytes of dynamic shared memory that the kernel(s) of this spec ask for.
[[nodiscard]] std::int64_t shared_memory_bytes(const KernelSpec& spec);
/// Those of the tiles of attention_backward_score_sum, of either family.
[[nodiscard]] std::int64_t score_gradient_tile_bytes(const KernelSpec& spec);

/// Query tiles that a block holds. A second one lets the hopper family copy the next item's query and keys while it
/// still computes this one's; head dims past 128 leave no shared memory for it.
[[nodiscard]] int query_stages(const KernelSpec& spec);

struct FamilyChoice {
  KernelFamily family = KernelFamily::mma;
  const char* reason = "";  ///< one line for `flashspan explain`
};
/// What a call needs of its kernels and a spec does not say.
struct FamilyNeeds {
  bool deterministic = false;  ///< sums have one order
  bool expanded = false;       ///< a tensor has stride 0 along an axis
};
/// The fastest family that can serve a spec whose direction, target, head dims and alignment are set.
[[nodiscard]] FamilyChoice choose_family(const KernelSpec& spec, const FamilyNeeds& needs = {});

/// `lowering`, or the next more general one that kernels of the spec's direction and family know.
[[nodiscard]] mask::LoweringKind served_lowering(const KernelSpec& spec, mask::LoweringKind lowering);

/// The one kernel that serves in place of every spec of this direction, target, dtype and these head dims, whatever its
/// mask and alignment. Nothing for a spec with a score, which is compiled in.
[[nodiscard]] std::optional<KernelSpec> interpreted_of(const KernelSpec& spec);

/// Whether a hopper backward has a warpgroup for dV and one for dK: past 128 columns, either of 64 keys is all that a
/// warpgroup has registers for (templates/attention/backward_roles.cuh).
[[nodiscard]] bool splits_roles(const KernelSpec& spec);

/// How the two warpgroups of a hopper backward share the product for dQ of one tile.
struct QueryGradientShare {
  int columns;  ///< of dQ
  int keys;     ///< that the product sums over
  int sums;     ///< shares that are summed apart; 1 if both warpgroups add to the same
};
[[nodiscard]] QueryGradientShare query_gradient_share(const KernelSpec& spec);
/// True if a call's backward, of the hopper family, takes two passes: where sums must have one order.
[[nodiscard]] bool takes_two_passes(const KernelSpec& spec, const FamilyNeeds& needs);

/// Rows of queries and of keys that a hopper backward works on at a time. In two passes, those of a pass go through its
/// tiles in steps, as many as leave their scores registers.
struct StepSizes {
  int queries;
  int keys;
};
[[nodiscard]] StepSizes step_sizes(const KernelSpec& spec);
/// Steps of keys, and of values, in flight in the pass that is stationary over queries.
struct QueryPassStages {
  int keys;
  int values;
};
[[nodiscard]] QueryPassStages query_pass_stages(const KernelSpec& spec);

/// What serves in place of a kernel whose mask or score takes more registers than it has: the same with the tile that
/// leaves it more, where that is another one; then a backward in two passes, each of which has fewer products; then the
/// same of a family that shares fewer registers with the products; then, where there is a score, whose lookups the
/// compiler reads ahead for all pairs of a tile, that family's smallest tile. A mask alone does not get it: every call
/// reserves memory for the lists of what may serve it, and small tiles have long ones. The result may have a fallback
/// of its own. Nothing if there is none.
[[nodiscard]] std::optional<KernelSpec> fallback_of(const KernelSpec& spec);

/// Rows of tiles, all heads and batches together, below which a call may cut them into portions, and query rows of one
/// (templates/attention/portions.cuh).
inline constexpr std::int64_t fewest_whole_rows = 264;
inline constexpr int split_block_m = 128;
/// True if there are kernels that split rows for a spec whose family and head dims are set: of the hopper family, with
/// registers left to put the results of a row together.
[[nodiscard]] bool can_split_rows(const KernelSpec& spec);
/// True if a call of this shape has too few rows of tiles to fill a card, and keys enough for several portions.
[[nodiscard]] bool worth_splitting(const AttentionShape& shape);

/// The default tile of a spec whose other fields are set: the first of the table that fits, else the model's best.
/// `light_mask`: mask::evaluates_in_few_registers(), or there is
/// no mask. Error: unsupported, naming the head dim and the limit, if nothing fits.
[[nodiscard]] Result<TileConfig> default_tile(const KernelSpec& spec, bool light_mask);
/// Whether the built-in table has the spec's tile for kernels of its kind; else the model chose it.
[[nodiscard]] bool is_in_table(const KernelSpec& spec);

}  // namespace flashspan::kernel
