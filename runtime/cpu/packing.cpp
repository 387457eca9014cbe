#include "runtime/cpu/packing.hpp"

#include <algorithm>

namespace flashspan::cpu {

void* element_address(const TensorView& view, std::int64_t b, std::int64_t h, std::int64_t row) {
  const std::int64_t offset = b * view.strides[0] + h * view.strides[1] + row * view.strides[2];
  return static_cast<char*>(view.data) + offset * size_in_bytes(view.dtype);
}

void pack_rows(const TileFunctions& functions, const TensorView& view, std::int64_t b, std::int64_t head,
               std::int64_t tile, std::int64_t rows, float factor, const PackedRows& target) {
  float* values = target.tile(b, head, tile);
  std::uint8_t* flags = target.flags(b, head, tile);
  const void* source = element_address(view, b, head, tile * target.tile_rows);
  functions.load_rows(source, view.strides[2], rows, view.shape[3], factor, values, target.columns);
  std::fill(values + rows * target.columns, values + target.tile_rows * target.columns, 0.0F);
  functions.nonfinite_rows(values, target.columns, rows, target.columns, flags);
  std::fill(flags + rows, flags + target.tile_rows, std::uint8_t{0});
}

void pack_columns(const TileFunctions& functions, const float* rows, const PackedColumns& target, std::int64_t b,
                  std::int64_t head, std::int64_t tile) {
  functions.transpose_rows(rows, target.columns, target.tile_rows, target.columns, target.tile(b, head, tile),
                           target.tile_rows);
}

}  // namespace flashspan::cpu
