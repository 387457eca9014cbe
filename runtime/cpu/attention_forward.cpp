#include "runtime/cpu/attention_forward.hpp"

#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/cpu/packing.hpp"
#include "runtime/cpu/score_tile.hpp"
#include "runtime/cpu/sink.hpp"

namespace flashspan::cpu {
namespace {

/// What a row's running softmax comes to.
struct RowEnd {
  float factor;  ///< of the products of its weights and values
  float lse;
};

/// The sink joins as one more column, which has no value; -inf is no sink. Where two infinities are equal,
/// exp(inf - inf) is 1.
RowEnd end_row(float maximum, float sum, float sink) {
  constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
  float weight = 1.0F;  // of the maximum
  if (sink != minus_infinity) {
    const float largest = std::fmax(maximum, sink);
    weight = maximum == largest ? 1.0F : std::exp(maximum - largest);
    sum = sum * weight + (sink == largest ? 1.0F : std::exp(sink - largest));
    maximum = largest;
  }
  if (sum == 0.0F) return {0.0F, minus_infinity};
  return {weight / sum, maximum + std::log(sum)};
}

struct ForwardScratch {
  explicit ForwardScratch(const CallSizes& sizes)
      : query(sizes.block_m * sizes.qk_columns),
        scores(sizes.block_m * sizes.block_n),
        out(sizes.block_m * sizes.v_columns),
        row_max(padded(sizes.block_m)),
        row_sum(padded(sizes.block_m)),
        base(padded(sizes.block_m)),
        correction(padded(sizes.block_m)),
        visibility(sizes) {}

  AlignedFloats query, scores, out, row_max, row_sum, base, correction;
  TileVisibility visibility;
};

class Forward {
 public:
  Forward(const TileFunctions& functions, const backend::LaunchArgs& args, const CallSizes& sizes,
          const Workspace& workspace)
      : functions_(functions),
        args_(args),
        sizes_(sizes),
        workspace_(workspace),
        mask_(args.mask_bindings, sizes.shape.q_len, sizes.shape.kv_len),
        score_(args.score_bindings, sizes.shape.q_len, sizes.shape.kv_len),
        context_{functions, sizes, TileMask(functions, args.mask_program, args.mask_bindings, sizes, mask_),
                 score_.data()},
        by_query_(workspace.by_query_counts, workspace.by_query_tiles, sizes.q_tiles, sizes.k_tiles),
        scratch_([&sizes] { return ForwardScratch(sizes); }) {}

  void run() {
    pack_visited_keys();
    const std::int64_t tasks = sizes_.shape.batch * sizes_.shape.query_heads * sizes_.q_tiles;
    tbb::parallel_for(std::int64_t{0}, tasks, [&](std::int64_t task) {
      // Late query tiles see most under a causal mask and go first.
      const std::int64_t q_tile = sizes_.q_tiles - 1 - task % sizes_.q_tiles;
      const std::int64_t h = task / sizes_.q_tiles % sizes_.shape.query_heads;
      attend(task / sizes_.q_tiles / sizes_.shape.query_heads, h, q_tile, scratch_.local());
    });
  }

 private:
  /// Key tiles that no query tile visits are never read.
  void pack_visited_keys() {
    const std::int64_t plan_rows = sizes_.plan_batch * sizes_.plan_heads;
    std::vector<std::uint8_t> visited(static_cast<std::size_t>(plan_rows * sizes_.k_tiles));
    for (std::int64_t row = 0; row < plan_rows; ++row) {
      for (std::int64_t q = 0; q < sizes_.q_tiles; ++q) {
        for (std::int64_t i = 0; i < by_query_.count(row, q); ++i) {
          visited[static_cast<std::size_t>(row * sizes_.k_tiles + by_query_.entry(row, q, i).index)] = 1;
        }
      }
    }
    const std::int64_t kv_heads = sizes_.shape.kv_heads;
    tbb::parallel_for(std::int64_t{0}, sizes_.shape.batch * kv_heads * sizes_.k_tiles, [&](std::int64_t task) {
      const std::int64_t tile = task % sizes_.k_tiles;
      const std::int64_t head = task / sizes_.k_tiles % kv_heads;
      const std::int64_t b = task / sizes_.k_tiles / kv_heads;
      bool needed = false;
      for (std::int64_t h = head * sizes_.group; h < (head + 1) * sizes_.group; ++h) {
        needed = needed || visited[static_cast<std::size_t>(sizes_.plan_row(b, h) * sizes_.k_tiles + tile)] != 0;
      }
      if (needed) pack_key_tile(b, head, tile);
    });
  }

  void pack_key_tile(std::int64_t b, std::int64_t head, std::int64_t tile) {
    const std::int64_t rows = sizes_.cols_of(tile);
    pack_rows(functions_, args_.value, b, head, tile, rows, 1.0F, workspace_.value);
    // The transpose is made from a row-major copy that nobody else needs.
    AlignedFloats copy(sizes_.block_n * sizes_.qk_columns);
    functions_.load_rows(element_address(args_.key, b, head, tile * sizes_.block_n), args_.key.strides[2], rows,
                         args_.key.shape[3], 1.0F, copy.data(), sizes_.qk_columns);
    pack_columns(functions_, copy.data(), workspace_.key_columns, b, head, tile);
  }

  void attend(std::int64_t b, std::int64_t h, std::int64_t q_tile, ForwardScratch& scratch) {
    const std::int64_t rows = sizes_.rows_of(q_tile);
    functions_.load_rows(element_address(args_.query, b, h, q_tile * sizes_.block_m), args_.query.strides[2], rows,
                         args_.query.shape[3], args_.scale, scratch.query.data(), sizes_.qk_columns);
    std::fill_n(scratch.out.data(), rows * sizes_.v_columns, 0.0F);
    std::fill_n(scratch.row_sum.data(), padded(rows), 0.0F);
    std::fill_n(scratch.row_max.data(), padded(rows), -std::numeric_limits<float>::infinity());
    const std::int64_t plan_row = sizes_.plan_row(b, h);
    const std::int64_t count = by_query_.count(plan_row, q_tile);
    for (std::int64_t i = 0; i < count; ++i) {
      visit({b, h, q_tile, by_query_.entry(plan_row, q_tile, i)}, scratch);
    }
    finish(b, h, q_tile, scratch);
  }

  void visit(const TilePosition& at, ForwardScratch& scratch) {
    const std::int64_t rows = sizes_.rows_of(at.q_tile);
    const std::int64_t cols = sizes_.cols_of(at.key.index);
    const std::int64_t kv_head = at.h / sizes_.group;
    float* scores = scratch.scores.data();
    multiply_scores(context_, scratch.query.data(), workspace_.key_columns.tile(at.b, kv_head, at.key.index), rows,
                    cols, scores);
    if (functions_.score_tile != nullptr) {
      functions_.score_tile(context_.score, at.b, at.h, at.q_tile * sizes_.block_m, at.key.index * sizes_.block_n, rows,
                            cols, scores, scores);
    }
    scratch.visibility.set(context_, at);
    const bool masked = scratch.visibility.masked();
    const auto softmax = masked ? functions_.softmax_masked : functions_.softmax_full;
    const std::int32_t moved = softmax(scores, rows, cols, scratch.visibility.words(), scratch.row_max.data(),
                                       scratch.row_sum.data(), scratch.base.data(), scratch.correction.data());
    if (moved != 0) {
      functions_.rescale_rows(scratch.out.data(), sizes_.v_columns, rows, sizes_.v_columns, scratch.correction.data());
    }
    const Product product{scores,
                          sizes_.block_n,
                          1,
                          workspace_.value.tile(at.b, kv_head, at.key.index),
                          sizes_.v_columns,
                          scratch.out.data(),
                          sizes_.v_columns,
                          rows,
                          cols,
                          sizes_.v_columns};
    if (masked) {
      accumulate_visible(functions_, product, workspace_.value.flags(at.b, kv_head, at.key.index),
                         {scratch.visibility.words(), sizes_.block_n / vector_columns}, false);
    } else {
      accumulate(functions_, product);
    }
  }

  void finish(std::int64_t b, std::int64_t h, std::int64_t q_tile, ForwardScratch& scratch) {
    const std::int64_t rows = sizes_.rows_of(q_tile);
    const std::int64_t first = q_tile * sizes_.block_m;
    const float sink = sink_of(args_.sink, h);
    for (std::int64_t row = 0; row < rows; ++row) {
      const float sum = scratch.row_sum.data()[row];
      // A visible score that is not -inf adds at least about 1, a NaN stays NaN: a sum of 0 is an empty row.
      if (sum == 0.0F) std::fill_n(scratch.out.data() + row * sizes_.v_columns, sizes_.v_columns, 0.0F);
      const RowEnd end = end_row(scratch.row_max.data()[row], sum, sink);
      scratch.base.data()[row] = end.factor;
      if (args_.lse.given()) *static_cast<float*>(element_address(args_.lse, b, h, first + row)) = end.lse;
    }
    functions_.store_rows(scratch.out.data(), sizes_.v_columns, rows, args_.out.shape[3], scratch.base.data(),
                          element_address(args_.out, b, h, first), args_.out.strides[2]);
  }

  const TileFunctions& functions_;
  const backend::LaunchArgs& args_;
  const CallSizes& sizes_;
  const Workspace& workspace_;
  ProgramBinding mask_, score_;
  TileContext context_;
  TileLists by_query_;
  tbb::enumerable_thread_specific<ForwardScratch> scratch_;
};

}  // namespace

void attention_forward(const TileFunctions& functions, const backend::LaunchArgs& args, const CallSizes& sizes,
                       const Workspace& workspace) {
  Forward(functions, args, sizes, workspace).run();
}

}  // namespace flashspan::cpu
