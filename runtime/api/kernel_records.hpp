// kernel_records.hpp -- what the public API says about a kernel, from what is stored with it.
#pragma once

#include <string>

#include "cache/kernel_key.hpp"
#include "codegen/mask/lowering.hpp"
#include "flashspan/attention.hpp"
#include "runtime/attention/kernel_metadata.hpp"

namespace flashspan::api {

[[nodiscard]] KernelRecord record_of(const attention::KernelMetadata& metadata, const cache::KernelKey& key,
                                     const std::string& outcome, mask::LoweringKind lowering);

}  // namespace flashspan::api
