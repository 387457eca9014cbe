// kernel_spec.cuh -- stand-in for the generated header of the same name: makes every template compile alone. The
// emitter (codegen/kernel/emit_cuda.cpp) writes the real one; a test holds the two to the same names.
#pragma once

namespace flashspan_device {

constexpr bool is_bf16 = true;
constexpr int head_dim_qk = 128;
constexpr int head_dim_v = 128;
enum class Lowering { none, row_ranges, column_bounds, bit_tiles, expression, interpreted };
constexpr Lowering lowering = Lowering::row_ranges;
constexpr bool has_plan = true;
#if defined(FLASHSPAN_LINT_SCORE)
constexpr bool has_score = true;
#else
constexpr bool has_score = false;
#endif
constexpr bool aligned = true;
constexpr bool split_rows = true;
constexpr int column_groups = 1;
constexpr int query_gradient_columns = 64;
constexpr int query_step = 64;
constexpr int key_stages = 4;
constexpr int value_stages = 3;
#if defined(FLASHSPAN_LINT_BACKWARD)
constexpr bool bits_by_key = true;
#else
constexpr bool bits_by_key = false;
#endif
#if defined(FLASHSPAN_LINT_TWO_PASSES)
constexpr bool bits_by_query = true;
constexpr bool two_passes = true;
constexpr int key_step = 64;
#else
constexpr bool bits_by_query = !bits_by_key;
constexpr bool two_passes = false;
constexpr int key_step = 128;
#endif
#if defined(FLASHSPAN_LINT_TWO_PASSES)
constexpr int block_m = 128;
constexpr int block_n = 128;
constexpr int num_warps = 8;
constexpr int num_stages = 2;
constexpr int shared_bytes = (2 * 128 + (4 + 3) * 64) * 2 * 128 + 512;
#elif defined(FLASHSPAN_LINT_HOPPER) && defined(FLASHSPAN_LINT_BACKWARD)
constexpr int block_m = 64;
constexpr int block_n = 128;
constexpr int num_warps = 8;
constexpr int num_stages = 2;
constexpr int shared_bytes = (128 + 2 * 64) * 4 * 128 + 2 * 128 * 128 + 2 * 2 * 64 * 4 + 384;
#elif defined(FLASHSPAN_LINT_HOPPER)
constexpr int block_m = 128;
constexpr int block_n = 128;
constexpr int num_warps = 8;
constexpr int num_stages = 2;
constexpr int query_stages = 2;
constexpr int shared_bytes = 6 * 128 * 128 * 2 + 1408;
#else
constexpr int block_m = 64;
constexpr int block_n = 64;
constexpr int num_warps = 4;
constexpr int num_stages = 1;
#if defined(FLASHSPAN_LINT_BACKWARD)
constexpr int shared_bytes = 4 * 64 * (128 + 8) * 2 + 3 * 64 * 4;
#else
constexpr int shared_bytes = 3 * 64 * (128 + 8) * 2;
#endif
#endif

}  // namespace flashspan_device
