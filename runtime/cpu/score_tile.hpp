// score_tile.hpp -- one tile of scores with its visibility, as both directions make it.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/backend/backend.hpp"
#include "runtime/cpu/call_sizes.hpp"
#include "runtime/cpu/program_binding.hpp"
#include "runtime/cpu/tile_lists.hpp"
#include "runtime/cpu/tile_mask.hpp"
#include "runtime/cpu/tile_product.hpp"

namespace flashspan::cpu {

/// Floats at a 64-byte boundary.
class AlignedFloats {
 public:
  explicit AlignedFloats(std::int64_t count) : storage_(static_cast<std::size_t>(count) + 16) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    data_ = storage_.data() + (64 - address % 64) % 64 / sizeof(float);
  }
  AlignedFloats(AlignedFloats&&) noexcept = default;  // moving a vector keeps its memory
  AlignedFloats(const AlignedFloats&) = delete;
  AlignedFloats& operator=(const AlignedFloats&) = delete;
  [[nodiscard]] float* data() const { return data_; }

 private:
  std::vector<float> storage_;
  float* data_;
};

/// What every tile of one launch shares.
struct TileContext {
  const TileFunctions& functions;
  const CallSizes& sizes;
  TileMask mask;
  const ProgramData* score;
};

/// The pair of tiles that a score tile belongs to.
struct TilePosition {
  std::int64_t b = 0, h = 0, q_tile = 0;
  VisitedTile key;
};

/// Visibility words of one tile; null words mean that the tile is full and whole vectors wide.
class TileVisibility {
 public:
  explicit TileVisibility(const CallSizes& sizes)
      : words_(static_cast<std::size_t>(sizes.block_m * sizes.block_n / vector_columns)) {}

  void set(const TileContext& context, const TilePosition& position);
  /// Hides the rows whose lse is -inf: they see nothing, or scores of -inf only, and take no gradient.
  void hide_empty_rows(const CallSizes& sizes, const TilePosition& position, const float* lse);
  [[nodiscard]] const std::uint16_t* words() const { return masked_ ? words_.data() : nullptr; }
  [[nodiscard]] bool masked() const { return masked_; }

 private:
  void show_all(const CallSizes& sizes, std::int64_t rows, std::int64_t cols);

  std::vector<std::uint16_t> words_;
  bool masked_ = false;
};

/// scores[rows, block_n] = query[rows, qk_columns] . key columns of the tile.
void multiply_scores(const TileContext& context, const float* query, const float* key_columns, std::int64_t rows,
                     std::int64_t cols, float* scores);

}  // namespace flashspan::cpu
