// emit_warpgroup_products.hpp -- the two asynchronous matrix products of the Hopper forward kernel as CUDA text, for
// the one shape that a kernel uses. wgmma names every accumulator register, so a template cannot say "N of them".
#pragma once

#include <string>

#include "codegen/kernel/kernel_spec.hpp"

namespace flashspan::kernel {

/// Text of generated/warpgroup_products.cuh:
///   multiply_scores(scores, query, key): scores[64 x block_n] = Q K^T over head_dim_qk, operands by descriptor;
///   accumulate_values(out, weights, value): out[64 x head_dim_v] += P V, P in registers.
/// PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
[[nodiscard]] std::string emit_warpgroup_products(const KernelSpec& spec);

}  // namespace flashspan::kernel
