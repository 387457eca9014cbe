// dense_mask.hpp -- dense masks for comparison: one written by a test's own double loop, one asked of a Mask pair by
// pair.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "flashspan/inspect.hpp"
#include "flashspan/mask.hpp"

namespace flashspan::testing {

/// Small numbers in an owned array with a row-major view.
struct IntTensor {
  std::vector<std::int64_t> shape;
  std::vector<std::int32_t> values;

  IntTensor(std::vector<std::int64_t> sizes, std::vector<std::int32_t> data)
      : shape(std::move(sizes)), values(std::move(data)) {}
  explicit IntTensor(std::vector<std::int64_t> sizes) : shape(std::move(sizes)) {
    std::int64_t count = 1;
    for (std::int64_t size : shape) count *= size;
    values.resize(static_cast<std::size_t>(count));
  }

  std::int32_t& at(std::initializer_list<std::int64_t> place) {
    std::int64_t offset = 0;
    std::size_t axis = 0;
    for (std::int64_t index : place) offset = offset * shape[axis++] + index;
    return values[static_cast<std::size_t>(offset)];
  }

  [[nodiscard]] TensorView view() {
    TensorView result;
    result.data = values.data();
    result.dtype = DType::i32;
    result.rank = static_cast<int>(shape.size());
    std::int64_t stride = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      result.shape[axis] = shape[axis];
      result.strides[axis] = stride;
      stride *= shape[axis];
    }
    return result;
  }
};

inline IntTensor random_tensor(std::vector<std::int64_t> shape, int low, int high, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> value(low, high);
  IntTensor tensor(std::move(shape));
  for (std::int32_t& element : tensor.values) element = value(generator);
  return tensor;
}

inline AttentionShape sizes(std::int64_t batch, std::int64_t query_heads, std::int64_t kv_heads, std::int64_t q_len,
                            std::int64_t kv_len) {
  return {batch, query_heads, kv_heads, q_len, kv_len, 16, 16};
}

/// Which head of a tensor with `heads` heads (1, Hkv or Hq) serves query head h.
inline std::int64_t head_of(std::int64_t heads, std::int64_t h, const AttentionShape& shape) {
  return heads == 1 ? 0 : h / (shape.query_heads / heads);
}

/// Which batch entry of a tensor with `batch` entries (1 or B) serves batch b.
inline std::int64_t batch_of(std::int64_t batch, std::int64_t b) { return batch == 1 ? 0 : b; }

using Visible = std::function<bool(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k)>;

/// The mask agrees with `visible` on every pair, one by one and by tiles of 5 x 7 (which also proves the analysis).
inline void expect_visible(const Result<Mask>& mask, const AttentionShape& shape, const Visible& visible) {
  ASSERT_TRUE(mask.has_value()) << mask.error().message();
  constexpr std::int64_t block_m = 5;
  constexpr std::int64_t block_n = 7;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.query_heads; ++h) {
      const auto pairs = tile_map(*mask, shape, b, h, 1, 1);
      ASSERT_TRUE(pairs.has_value()) << pairs.error().message();
      const auto tiles = tile_map(*mask, shape, b, h, block_m, block_n);
      ASSERT_TRUE(tiles.has_value()) << tiles.error().message();
      std::vector<std::int64_t> seen(tiles->kinds.size());
      std::vector<std::int64_t> all(tiles->kinds.size());
      for (std::int64_t q = 0; q < shape.q_len; ++q) {
        for (std::int64_t k = 0; k < shape.kv_len; ++k) {
          const bool expected = visible(b, h, q, k);
          const TileKind kind = pairs->kinds[static_cast<std::size_t>(q * shape.kv_len + k)];
          ASSERT_EQ(kind, expected ? TileKind::full : TileKind::empty)
              << "b " << b << ", h " << h << ", q " << q << ", k " << k << " of " << mask->text();
          const auto tile = static_cast<std::size_t>(q / block_m * tiles->columns + k / block_n);
          seen[tile] += expected ? 1 : 0;
          ++all[tile];
        }
      }
      for (std::size_t tile = 0; tile < seen.size(); ++tile) {
        const TileKind expected = seen[tile] == 0           ? TileKind::empty
                                  : seen[tile] == all[tile] ? TileKind::full
                                                            : TileKind::partial;
        ASSERT_EQ(tiles->kinds[tile], expected) << "tile " << tile << " of " << mask->text();
      }
    }
  }
}

}  // namespace flashspan::testing
