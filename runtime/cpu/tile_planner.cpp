#include "runtime/cpu/tile_planner.hpp"

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <vector>

#include "codegen/mask/tile_intervals.hpp"
#include "runtime/cpu/program_binding.hpp"
#include "runtime/cpu/tile_lists.hpp"
#include "runtime/cpu/tile_mask.hpp"

namespace flashspan::cpu {
namespace {

using mask::TileClass;

/// Query tiles that one task classifies, and the side of the largest block handed to the analysis.
constexpr std::int64_t band_tiles = 16;

/// Half-open ranges of tiles.
struct Block {
  std::int64_t q_begin, q_end, k_begin, k_end;
};

/// Classes of the tiles of one band of query tiles of one plan row.
class BandClassifier {
 public:
  BandClassifier(const TileMask& mask, const mask::Program& program, const mask::Bindings& bindings,
                 const CallSizes& sizes, std::int64_t b, std::int64_t h, std::int64_t q_begin)
      : mask_(mask),
        program_(program),
        bindings_(bindings),
        sizes_(sizes),
        b_(b),
        h_(h),
        q_begin_(q_begin),
        q_end_(std::min(q_begin + band_tiles, sizes.q_tiles)),
        classes_(static_cast<std::size_t>((q_end_ - q_begin_) * sizes.k_tiles)),
        bits_(static_cast<std::size_t>(sizes.block_m * sizes.block_n / vector_columns)) {}

  void classify_band() {
    for (std::int64_t k = 0; k < sizes_.k_tiles; k += band_tiles) {
      classify({q_begin_, q_end_, k, std::min(k + band_tiles, sizes_.k_tiles)});
    }
  }

  /// Appends the visited tiles of query tile `q` to `tiles`, ascending; returns how many.
  std::int32_t write_list(std::int64_t q, std::int32_t* tiles) const {
    std::int32_t count = 0;
    for (std::int64_t k = 0; k < sizes_.k_tiles; ++k) {
      const TileClass kind = classes_[position(q, k)];
      if (kind == TileClass::empty) continue;
      const auto index = static_cast<std::uint32_t>(k);
      tiles[count++] = static_cast<std::int32_t>(kind == TileClass::partial ? index | 0x80000000U : index);
    }
    return count;
  }
  [[nodiscard]] std::int64_t q_begin() const { return q_begin_; }
  [[nodiscard]] std::int64_t q_end() const { return q_end_; }

 private:
  [[nodiscard]] std::size_t position(std::int64_t q, std::int64_t k) const {
    return static_cast<std::size_t>((q - q_begin_) * sizes_.k_tiles + k);
  }

  void classify(const Block& block) {
    const std::int64_t q_count = block.q_end - block.q_begin;
    const std::int64_t k_count = block.k_end - block.k_begin;
    if (q_count == 0 || k_count == 0) return;
    if (q_count == 1 && k_count == 1) {
      classes_[position(block.q_begin, block.k_begin)] = evaluate_tile(block.q_begin, block.k_begin);
      return;
    }
    const TileClass kind = mask::classify(program_, bindings_, bounds_of(block));
    if (kind != TileClass::partial) {
      for (std::int64_t q = block.q_begin; q < block.q_end; ++q) {
        for (std::int64_t k = block.k_begin; k < block.k_end; ++k) classes_[position(q, k)] = kind;
      }
      return;
    }
    const std::int64_t q_middle = block.q_begin + (q_count + 1) / 2;
    const std::int64_t k_middle = block.k_begin + (k_count + 1) / 2;
    classify({block.q_begin, q_middle, block.k_begin, k_middle});
    classify({block.q_begin, q_middle, k_middle, block.k_end});
    classify({q_middle, block.q_end, block.k_begin, k_middle});
    classify({q_middle, block.q_end, k_middle, block.k_end});
  }

  [[nodiscard]] mask::TileBounds bounds_of(const Block& block) const {
    mask::TileBounds bounds;
    bounds.b = {b_, b_};
    bounds.h = {h_, h_};
    bounds.q = {block.q_begin * sizes_.block_m, std::min(block.q_end * sizes_.block_m, sizes_.shape.q_len) - 1};
    bounds.k = {block.k_begin * sizes_.block_n, std::min(block.k_end * sizes_.block_n, sizes_.shape.kv_len) - 1};
    bounds.q_len = sizes_.shape.q_len;
    bounds.kv_len = sizes_.shape.kv_len;
    return bounds;
  }

  TileClass evaluate_tile(std::int64_t q, std::int64_t k) {
    const std::int64_t rows = sizes_.rows_of(q);
    const std::int64_t cols = sizes_.cols_of(k);
    const std::int64_t visible =
        mask_.evaluate(b_, h_, q * sizes_.block_m, k * sizes_.block_n, rows, cols, bits_.data());
    return visible == 0 ? TileClass::empty : visible == rows * cols ? TileClass::full : TileClass::partial;
  }

  const TileMask& mask_;
  const mask::Program& program_;
  const mask::Bindings& bindings_;
  const CallSizes& sizes_;
  std::int64_t b_, h_, q_begin_, q_end_;
  std::vector<TileClass> classes_;
  std::vector<std::uint16_t> bits_;
};

/// The lists by key tile are the transpose of those by query tile, so both directions visit the same pairs.
void transpose_lists(const CallSizes& sizes, const Workspace& workspace, std::int64_t plan_row) {
  const TileLists by_query(workspace.by_query_counts, workspace.by_query_tiles, sizes.q_tiles, sizes.k_tiles);
  std::int32_t* counts = workspace.by_key_counts + plan_row * sizes.k_tiles;
  std::int32_t* tiles = workspace.by_key_tiles + plan_row * sizes.k_tiles * sizes.q_tiles;
  std::fill_n(counts, sizes.k_tiles, 0);
  for (std::int64_t q = 0; q < sizes.q_tiles; ++q) {
    const std::int64_t count = by_query.count(plan_row, q);
    for (std::int64_t i = 0; i < count; ++i) {
      const VisitedTile visited = by_query.entry(plan_row, q, i);
      const auto index = static_cast<std::uint32_t>(q);
      const std::int64_t slot = visited.index * sizes.q_tiles + counts[visited.index]++;
      tiles[slot] = static_cast<std::int32_t>(visited.partial ? index | 0x80000000U : index);
    }
  }
}

}  // namespace

void plan_tiles(const TileFunctions& functions, const mask::Program& program, const mask::Bindings& bindings,
                const CallSizes& sizes, const Workspace& workspace) {
  const ProgramBinding binding(&bindings, sizes.shape.q_len, sizes.shape.kv_len);
  const TileMask mask(functions, &program, &bindings, sizes, binding);
  const std::int64_t plan_rows = sizes.plan_batch * sizes.plan_heads;
  const std::int64_t bands = ceil_divide(sizes.q_tiles, band_tiles);
  tbb::parallel_for(std::int64_t{0}, plan_rows * bands, [&](std::int64_t task) {
    const std::int64_t plan_row = task / bands;
    BandClassifier band(mask, program, bindings, sizes, plan_row / sizes.plan_heads, plan_row % sizes.plan_heads,
                        task % bands * band_tiles);
    band.classify_band();
    for (std::int64_t q = band.q_begin(); q < band.q_end(); ++q) {
      const std::int64_t row = plan_row * sizes.q_tiles + q;
      workspace.by_query_counts[row] = band.write_list(q, workspace.by_query_tiles + row * sizes.k_tiles);
    }
  });
  if (workspace.by_key_counts == nullptr) return;
  tbb::parallel_for(std::int64_t{0}, plan_rows,
                    [&](std::int64_t plan_row) { transpose_lists(sizes, workspace, plan_row); });
}

}  // namespace flashspan::cpu
