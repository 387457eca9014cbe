// tuner.hpp -- Tuner: the tiles of one call compiled, compared and timed.
#pragma once

#include <vector>

#include "flashspan/core/error.hpp"
#include "flashspan/tuning.hpp"
#include "runtime/attention/attention_op.hpp"

namespace flashspan::api {

/// The tiles that the kernel of a call with this spec may have, best first.
[[nodiscard]] std::vector<TileResources> tile_resources(const kernel::KernelSpec& spec, bool light_mask,
                                                        const AttentionShape& shape, int processors);

/// See Attention::tune(); writes no file and changes nothing that later calls depend on.
/// Error: as AttentionOp::run() of the default tile, and of an allocation.
[[nodiscard]] Result<TuneReport> tune(attention::AttentionOp& op, const attention::AttentionCall& call,
                                      const TuneOptions& options);

}  // namespace flashspan::api
