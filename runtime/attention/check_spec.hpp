// check_spec.hpp -- whether a spec that came as text is one that calls have: read from a file, or sent by a client.
#pragma once

#include "codegen/kernel/kernel_spec.hpp"
#include "flashspan/core/error.hpp"

namespace flashspan::attention {

/// Every field is checked against the others and the programs against their canonical text, so that what passes gives
/// kernels of this library, with tiles that its templates take, and nothing else.
/// Error: bad_argument, unsupported; they name the field.
[[nodiscard]] Result<void> check_spec(const kernel::KernelSpec& spec);

}  // namespace flashspan::attention
