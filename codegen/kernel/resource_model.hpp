// resource_model.hpp -- the tiles that the templates can be made with, what each takes of a multiprocessor, and which
// are likely to be fast: all of it known before anything is compiled.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codegen/kernel/kernel_spec.hpp"
#include "flashspan/core/error.hpp"
#include "flashspan/core/tile_config.hpp"
#include "flashspan/core/types.hpp"

namespace flashspan::kernel {

/// Of a CUDA kernel with one tile. A CPU kernel takes nothing of this and has zeros.
struct Resources {
  int threads = 0;  ///< of a block, those that only copy included
  std::int64_t shared_bytes = 0;
  std::int64_t shared_limit = 0;
  /// Of a computing thread, in 32-bit registers: the results that it holds, and one tile's scores and weights.
  int accumulators = 0;
  int registers = 0;         ///< what the compiler is likely to use: as measured on cubins, and at most what it can
  int fewest_registers = 0;  ///< with less than this, it would have to spill
  int register_limit = 0;    ///< that a computing thread can have: by the launch bound, or by what setmaxnreg gives
  int blocks = 0;            ///< on a multiprocessor at a time; 0: the kernel cannot be launched
  double occupancy = 0;      ///< resident warps, as a part of the most that there can be
  [[nodiscard]] bool fits() const { return blocks > 0 && fewest_registers <= register_limit; }
};

/// `light_mask` as in default_tile(): others keep more in registers.
[[nodiscard]] Resources resources_of(const KernelSpec& spec, bool light_mask);

/// Every tile that the templates take for a spec whose other fields are set, whether it fits or not.
[[nodiscard]] std::vector<TileConfig> legal_tiles(const KernelSpec& spec);

/// Error: bad_argument, if the templates do not take the spec's tile or a block of it cannot be launched.
[[nodiscard]] Result<void> check_tile(const KernelSpec& spec);

/// Whether a kernel of the spec, compiled to so many registers a thread, fits a multiprocessor.
[[nodiscard]] bool is_launchable(const KernelSpec& spec, int compiled_registers);

/// What the model needs to know of a call beside its spec. Nothing known of it: a long sequence of many heads.
struct CallSize {
  AttentionShape shape{.batch = 4, .query_heads = 32, .kv_heads = 32, .q_len = 8192, .kv_len = 8192};
  int processors = 128;
};

/// A number to compare tiles of one spec by: about the time that a tile's work takes for each pair of its rows and
/// columns, with what is lost to copies, to steps, to waiting, to tiles past the end and to processors without work.
[[nodiscard]] double predicted_cost(const KernelSpec& spec, const Resources& resources, const CallSize& size);

struct ModelledTile {
  TileConfig tile;
  Resources resources;
  double cost = 0;
};
/// The legal tiles that fit, by their predicted cost.
[[nodiscard]] std::vector<ModelledTile> modelled_tiles(const KernelSpec& spec, bool light_mask,
                                                       const CallSize& size = {});

}  // namespace flashspan::kernel
