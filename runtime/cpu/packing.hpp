// packing.hpp -- moving tiles between the caller's strided tensors and the packed fp32 workspace.
#pragma once

#include <cstdint>

#include "flashspan/core/tensor.hpp"
#include "runtime/cpu/tile_functions.hpp"
#include "runtime/cpu/workspace.hpp"

namespace flashspan::cpu {

/// Address of element (b, h, row, 0) of a [B, H, S, D] view, or (b, h, row) of a [B, H, S] one.
[[nodiscard]] void* element_address(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t row);

/// Rows [first, first + rows) of `view` times `factor` as packed tile (b, head, tile), with flags; rows past them are
/// 0.
void pack_rows(const TileFunctions& functions, const TensorView& view, std::int64_t b, std::int64_t head,
               std::int64_t tile, std::int64_t rows, float factor, const PackedRows& target);
/// The transposed form of a tile that was packed as rows.
void pack_columns(const TileFunctions& functions, const float* rows, const PackedColumns& target, std::int64_t b,
                  std::int64_t head, std::int64_t tile);

}  // namespace flashspan::cpu
