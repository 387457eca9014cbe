#include "runtime/cpu/attention_backward.hpp"

#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "runtime/cpu/differentiate_scores.hpp"
#include "runtime/cpu/packing.hpp"
#include "runtime/cpu/score_gradients.hpp"
#include "runtime/cpu/sink.hpp"

namespace flashspan::cpu {
namespace {

struct BackwardScratch {
  BackwardScratch(const CallSizes& sizes, bool with_score)
      : tile(sizes, with_score),
        key_gradient(sizes.block_n * sizes.qk_columns),
        value_gradient(sizes.block_n * sizes.v_columns),
        rows(sizes.block_m * std::max(sizes.v_columns, sizes.qk_columns)),
        factors(std::max(sizes.block_m, sizes.block_n)) {}

  DifferentiatedTile tile;
  AlignedFloats key_gradient, value_gradient, rows, factors;
};

class Backward {
 public:
  Backward(const TileFunctions& functions, const std::vector<kernel::ScoreLookup>& lookups,
           const backend::LaunchArgs& args, const CallSizes& sizes, const Workspace& workspace)
      : functions_(functions),
        lookups_(lookups),
        args_(args),
        sizes_(sizes),
        workspace_(workspace),
        mask_(args.mask_bindings, sizes.shape.q_len, sizes.shape.kv_len),
        score_(args.score_bindings, sizes.shape.q_len, sizes.shape.kv_len),
        context_{functions, sizes, TileMask(functions, args.mask_program, args.mask_bindings, sizes, mask_),
                 score_.data()},
        by_query_(workspace.by_query_counts, workspace.by_query_tiles, sizes.q_tiles, sizes.k_tiles),
        by_key_(workspace.by_key_counts, workspace.by_key_tiles, sizes.k_tiles, sizes.q_tiles),
        scratch_([this] { return BackwardScratch(sizes_, functions_.score_tile != nullptr); }) {}

  void run() {
    for_each_query_tile([&](std::int64_t b, std::int64_t h, std::int64_t tile) { pack_query_tile(b, h, tile); });
    for_each_key_tile([&](std::int64_t b, std::int64_t head, std::int64_t tile) { pack_key_tile(b, head, tile); });
    if (one_task_per_head()) {
      // Each head's key tiles in turn, adding to dQ on the way: the scores of a pair are computed once.
      tbb::parallel_for(std::int64_t{0}, sizes_.shape.batch * sizes_.shape.kv_heads, [&](std::int64_t task) {
        const std::int64_t b = task / sizes_.shape.kv_heads;
        const std::int64_t head = task % sizes_.shape.kv_heads;
        for (std::int64_t tile = 0; tile < sizes_.k_tiles; ++tile) differentiate_key_tile(b, head, tile, true);
      });
    } else {
      // dQ in a pass of its own. It adds the same tiles in the same order, so the result is the same to the bit.
      for_each_key_tile(
          [&](std::int64_t b, std::int64_t head, std::int64_t tile) { differentiate_key_tile(b, head, tile, false); });
      for_each_query_tile(
          [&](std::int64_t b, std::int64_t h, std::int64_t tile) { differentiate_query_tile(b, h, tile); });
    }
    for_each_query_tile([&](std::int64_t b, std::int64_t h, std::int64_t tile) { store_query_tile(b, h, tile); });
    if (!args_.score_gradients.empty()) differentiate_looked_up(context_, args_, workspace_, lookups_);
    if (!args_.sink_gradient.given()) return;
    tbb::parallel_for(std::int64_t{0}, sizes_.shape.query_heads, [&](std::int64_t h) { differentiate_sink(h); });
  }

 private:
  /// The one pass does 5 products a tile where two passes do 7, but has only batch * kv_heads tasks.
  [[nodiscard]] bool one_task_per_head() const {
    const std::int64_t heads = sizes_.shape.batch * sizes_.shape.kv_heads;
    const std::int64_t threads = tbb::this_task_arena::max_concurrency();
    const std::int64_t rounds = ceil_divide(heads, threads);
    return rounds * threads * 5 <= heads * 7;
  }

  template <typename Body>
  void for_each_query_tile(const Body& body) const {
    const std::int64_t heads = sizes_.shape.query_heads;
    tbb::parallel_for(std::int64_t{0}, sizes_.shape.batch * heads * sizes_.q_tiles, [&](std::int64_t task) {
      body(task / sizes_.q_tiles / heads, task / sizes_.q_tiles % heads, task % sizes_.q_tiles);
    });
  }
  template <typename Body>
  void for_each_key_tile(const Body& body) const {
    const std::int64_t heads = sizes_.shape.kv_heads;
    tbb::parallel_for(std::int64_t{0}, sizes_.shape.batch * heads * sizes_.k_tiles, [&](std::int64_t task) {
      body(task / sizes_.k_tiles / heads, task / sizes_.k_tiles % heads, task % sizes_.k_tiles);
    });
  }

  void pack_query_tile(std::int64_t b, std::int64_t h, std::int64_t tile) {
    const std::int64_t rows = sizes_.rows_of(tile);
    float* dq = workspace_.query_gradient.tile(b, h, tile);
    std::fill_n(dq, sizes_.block_m * sizes_.qk_columns, 0.0F);
    const bool visits = by_query_.count(sizes_.plan_row(b, h), tile) != 0;
    if (!visits && !args_.sink_gradient.given()) return;
    float* delta = workspace_.delta.tile(b, h, tile);
    std::fill_n(delta, rows, 0.0F);
    if (visits) pack_visiting_tile(b, h, tile, delta);
    float* lse = workspace_.lse.tile(b, h, tile);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t q = tile * sizes_.block_m + row;
      lse[row] = *static_cast<const float*>(element_address(args_.lse, b, h, q));
      if (args_.lse_gradient.given()) {
        delta[row] -= *static_cast<const float*>(element_address(args_.lse_gradient, b, h, q));
      }
    }
  }

  /// `delta` becomes rowsum(dO * O).
  void pack_visiting_tile(std::int64_t b, std::int64_t h, std::int64_t tile, float* delta) {
    const std::int64_t rows = sizes_.rows_of(tile);
    pack_rows(functions_, args_.query, b, h, tile, rows, args_.scale, workspace_.query);
    pack_rows(functions_, args_.out_gradient, b, h, tile, rows, 1.0F, workspace_.out_gradient);
    float* out = scratch_.local().rows.data();
    functions_.load_rows(element_address(args_.out, b, h, tile * sizes_.block_m), args_.out.strides[2], rows,
                         args_.out.shape[3], 1.0F, out, sizes_.v_columns);
    functions_.row_dots(out, workspace_.out_gradient.tile(b, h, tile), sizes_.v_columns, rows, sizes_.v_columns, delta);
  }

  void pack_key_tile(std::int64_t b, std::int64_t head, std::int64_t tile) {
    bool visited = false;
    for (std::int64_t h = head * sizes_.group; h < (head + 1) * sizes_.group; ++h) {
      visited = visited || by_key_.count(sizes_.plan_row(b, h), tile) != 0;
    }
    if (!visited) return;
    const std::int64_t rows = sizes_.cols_of(tile);
    pack_rows(functions_, args_.key, b, head, tile, rows, 1.0F, workspace_.key);
    pack_columns(functions_, workspace_.key.tile(b, head, tile), workspace_.key_columns, b, head, tile);
    AlignedFloats copy(sizes_.block_n * sizes_.v_columns);
    functions_.load_rows(element_address(args_.value, b, head, tile * sizes_.block_n), args_.value.strides[2], rows,
                         args_.value.shape[3], 1.0F, copy.data(), sizes_.v_columns);
    pack_columns(functions_, copy.data(), workspace_.value_columns, b, head, tile);
  }

  /// Probabilities and score gradients of one tile, into the scratch.
  void differentiate(const TilePosition& at, BackwardScratch& scratch) {
    differentiate_scores(context_, workspace_, at, scratch.tile, [&](const float* scores, float* derivatives) {
      functions_.score_derivative_tile(context_.score, at.b, at.h, at.q_tile * sizes_.block_m,
                                       at.key.index * sizes_.block_n, sizes_.rows_of(at.q_tile),
                                       sizes_.cols_of(at.key.index), scores, derivatives);
    });
  }

  void add(const Product& product, const std::uint8_t* nonfinite, const BackwardScratch& scratch, bool transposed) {
    if (!scratch.tile.visibility.masked()) return accumulate(functions_, product);
    accumulate_visible(functions_, product, nonfinite,
                       {scratch.tile.visibility.words(), sizes_.block_n / vector_columns}, transposed);
  }

  void add_query_gradient(const TilePosition& at, const BackwardScratch& scratch) {
    const std::int64_t kv_head = at.h / sizes_.group;
    add({scratch.tile.gradients.data(), sizes_.block_n, 1, workspace_.key.tile(at.b, kv_head, at.key.index),
         sizes_.qk_columns, workspace_.query_gradient.tile(at.b, at.h, at.q_tile), sizes_.qk_columns,
         sizes_.rows_of(at.q_tile), sizes_.cols_of(at.key.index), sizes_.qk_columns},
        workspace_.key.flags(at.b, kv_head, at.key.index), scratch, false);
  }

  void add_key_gradients(const TilePosition& at, BackwardScratch& scratch) {
    const std::int64_t rows = sizes_.rows_of(at.q_tile);
    const std::int64_t cols = sizes_.cols_of(at.key.index);
    add({scratch.tile.probabilities.data(), 1, sizes_.block_n, workspace_.out_gradient.tile(at.b, at.h, at.q_tile),
         sizes_.v_columns, scratch.value_gradient.data(), sizes_.v_columns, cols, rows, sizes_.v_columns},
        workspace_.out_gradient.flags(at.b, at.h, at.q_tile), scratch, true);
    add({scratch.tile.gradients.data(), 1, sizes_.block_n, workspace_.query.tile(at.b, at.h, at.q_tile),
         sizes_.qk_columns, scratch.key_gradient.data(), sizes_.qk_columns, cols, rows, sizes_.qk_columns},
        workspace_.query.flags(at.b, at.h, at.q_tile), scratch, true);
  }

  void differentiate_key_tile(std::int64_t b, std::int64_t head, std::int64_t tile, bool with_query_gradient) {
    BackwardScratch& scratch = scratch_.local();
    std::fill_n(scratch.key_gradient.data(), sizes_.block_n * sizes_.qk_columns, 0.0F);
    std::fill_n(scratch.value_gradient.data(), sizes_.block_n * sizes_.v_columns, 0.0F);
    for (std::int64_t h = head * sizes_.group; h < (head + 1) * sizes_.group; ++h) {
      const std::int64_t plan_row = sizes_.plan_row(b, h);
      for (std::int64_t i = 0; i < by_key_.count(plan_row, tile); ++i) {
        const VisitedTile query = by_key_.entry(plan_row, tile, i);
        const TilePosition at{b, h, query.index, {tile, query.partial}};
        differentiate(at, scratch);
        add_key_gradients(at, scratch);
        if (with_query_gradient) add_query_gradient(at, scratch);
      }
    }
    const std::int64_t rows = sizes_.cols_of(tile);
    std::fill_n(scratch.factors.data(), rows, 1.0F);
    functions_.store_rows(scratch.key_gradient.data(), sizes_.qk_columns, rows, args_.key_gradient.shape[3],
                          scratch.factors.data(), element_address(args_.key_gradient, b, head, tile * sizes_.block_n),
                          args_.key_gradient.strides[2]);
    functions_.store_rows(scratch.value_gradient.data(), sizes_.v_columns, rows, args_.value_gradient.shape[3],
                          scratch.factors.data(), element_address(args_.value_gradient, b, head, tile * sizes_.block_n),
                          args_.value_gradient.strides[2]);
  }

  void differentiate_query_tile(std::int64_t b, std::int64_t h, std::int64_t tile) {
    BackwardScratch& scratch = scratch_.local();
    const std::int64_t plan_row = sizes_.plan_row(b, h);
    for (std::int64_t i = 0; i < by_query_.count(plan_row, tile); ++i) {
      const TilePosition at{b, h, tile, by_query_.entry(plan_row, tile, i)};
      differentiate(at, scratch);
      add_query_gradient(at, scratch);
    }
  }

  void store_query_tile(std::int64_t b, std::int64_t h, std::int64_t tile) {
    float* factors = scratch_.local().factors.data();
    const std::int64_t rows = sizes_.rows_of(tile);
    std::fill_n(factors, rows, args_.scale);
    functions_.store_rows(
        workspace_.query_gradient.tile(b, h, tile), sizes_.qk_columns, rows, args_.query_gradient.shape[3], factors,
        element_address(args_.query_gradient, b, h, tile * sizes_.block_m), args_.query_gradient.strides[2]);
  }

  /// The sum over batch and queries of -weight * delta, in this order.
  void differentiate_sink(std::int64_t h) {
    const float sink = sink_of(args_.sink, h);
    double sum = 0;
    const bool none = sink == -std::numeric_limits<float>::infinity();
    for (std::int64_t b = 0; b < sizes_.shape.batch && !none; ++b) {
      for (std::int64_t tile = 0; tile < sizes_.q_tiles; ++tile) {
        const float* lse = workspace_.lse.tile(b, h, tile);
        const float* delta = workspace_.delta.tile(b, h, tile);
        for (std::int64_t row = 0; row < sizes_.rows_of(tile); ++row) {
          sum -= double{sink_weight(sink, lse[row])} * double{delta[row]};
        }
      }
    }
    static_cast<float*>(args_.sink_gradient.data)[h * args_.sink_gradient.strides[0]] = static_cast<float>(sum);
  }

  const TileFunctions& functions_;
  const std::vector<kernel::ScoreLookup>& lookups_;
  const backend::LaunchArgs& args_;
  const CallSizes& sizes_;
  const Workspace& workspace_;
  ProgramBinding mask_, score_;
  TileContext context_;
  TileLists by_query_, by_key_;
  tbb::enumerable_thread_specific<BackwardScratch> scratch_;
};

}  // namespace

void attention_backward(const TileFunctions& functions, const std::vector<kernel::ScoreLookup>& lookups,
                        const backend::LaunchArgs& args, const CallSizes& sizes, const Workspace& workspace) {
  Backward(functions, lookups, args, sizes, workspace).run();
}

}  // namespace flashspan::cpu
