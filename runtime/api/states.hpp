// states.hpp -- what a Mask and a Score hold: program, data, and the memory that the data may own.
#pragma once

#include <memory>
#include <vector>

#include "runtime/attention/attention_call.hpp"

namespace flashspan {

/// Memory owned by the mask (copies on a device), kept alive as long as the mask.
using OwnedMemory = std::vector<std::shared_ptr<void>>;

struct MaskState : attention::BoundMask {
  OwnedMemory owned;
};

struct ScoreState : attention::BoundScore {
  OwnedMemory owned;
};

}  // namespace flashspan
