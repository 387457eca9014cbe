#include "runtime/cpu/workspace.hpp"

namespace flashspan::cpu {
namespace {

constexpr std::int64_t region_alignment = 64;  // one cache line, one AVX-512 register

/// Works on addresses, not pointers: to learn the size alone, the base is null.
class Cutter {
 public:
  explicit Cutter(void* base) {
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    base_ = (address + region_alignment - 1) / region_alignment * region_alignment;
  }

  template <typename Element>
  Element* take(std::int64_t count) {
    auto* region = reinterpret_cast<Element*>(base_ + static_cast<std::uintptr_t>(used_));
    const auto bytes = count * static_cast<std::int64_t>(sizeof(Element));
    used_ += ceil_divide(bytes, region_alignment) * region_alignment;
    return region;
  }

  PackedRows take_rows(std::int64_t batch, std::int64_t heads, std::int64_t tiles, std::int64_t tile_rows,
                       std::int64_t columns) {
    const std::int64_t rows = batch * heads * tiles * tile_rows;
    PackedRows packed{nullptr, nullptr, heads, tiles, tile_rows, columns};
    packed.values = take<float>(rows * columns);
    packed.nonfinite = take<std::uint8_t>(rows);
    return packed;
  }

  [[nodiscard]] std::int64_t bytes() const { return used_ + region_alignment; }

 private:
  std::uintptr_t base_;
  std::int64_t used_ = 0;
};

}  // namespace

Workspace lay_out(Direction direction, const CallSizes& sizes, void* base) {
  Cutter cutter(base);
  Workspace workspace;
  const AttentionShape& shape = sizes.shape;
  const bool backward = direction == Direction::backward;
  if (sizes.planned) {
    const std::int64_t plans = sizes.plan_batch * sizes.plan_heads;
    workspace.by_query_counts = cutter.take<std::int32_t>(plans * sizes.q_tiles);
    workspace.by_query_tiles = cutter.take<std::int32_t>(plans * sizes.q_tiles * sizes.k_tiles);
    if (backward) {
      workspace.by_key_counts = cutter.take<std::int32_t>(plans * sizes.k_tiles);
      workspace.by_key_tiles = cutter.take<std::int32_t>(plans * sizes.k_tiles * sizes.q_tiles);
    }
  }
  const auto key_side = [&](std::int64_t columns) {
    return cutter.take_rows(shape.batch, shape.kv_heads, sizes.k_tiles, sizes.block_n, columns);
  };
  const auto query_side = [&](std::int64_t columns) {
    return cutter.take_rows(shape.batch, shape.query_heads, sizes.q_tiles, sizes.block_m, columns);
  };
  workspace.key_columns = key_side(sizes.qk_columns);
  if (backward) {
    workspace.value_columns = key_side(sizes.v_columns);
    workspace.key = key_side(sizes.qk_columns);
    workspace.query = query_side(sizes.qk_columns);
    workspace.out_gradient = query_side(sizes.v_columns);
    workspace.query_gradient = query_side(sizes.qk_columns);
    workspace.lse = query_side(1);
    workspace.delta = query_side(1);
    workspace.score_sums = cutter.take<double>(sizes.score_elements);
  } else {
    workspace.value = key_side(sizes.v_columns);
  }
  workspace.bytes = cutter.bytes();
  return workspace;
}

}  // namespace flashspan::cpu
