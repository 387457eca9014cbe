#include "runtime/cpu/score_gradients.hpp"

#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstdint>

#include "runtime/cpu/differentiate_scores.hpp"

namespace flashspan::cpu {
namespace {

/// Tiles of a wave a thread: enough that threads seldom wait for the slowest.
constexpr std::int64_t tiles_per_thread = 8;

/// What one tile adds to one element of the sums.
struct Addend {
  std::int64_t element;
  double value;
};

struct LookupScratch {
  LookupScratch(const CallSizes& sizes, std::size_t lookups)
      : tile(sizes, true),
        slopes(static_cast<std::int64_t>(lookups) * sizes.block_m * sizes.block_n),
        elements(lookups * static_cast<std::size_t>(sizes.block_m * sizes.block_n)) {}

  DifferentiatedTile tile;
  AlignedFloats slopes;                // [lookups, block_m, block_n]
  std::vector<std::int64_t> elements;  // the same
};

class LookedUp {
 public:
  LookedUp(const TileContext& context, const backend::LaunchArgs& args, const Workspace& workspace,
           const std::vector<kernel::ScoreLookup>& lookups)
      : context_(context),
        sizes_(context.sizes),
        args_(args),
        workspace_(workspace),
        lookups_(lookups),
        by_query_(workspace.by_query_counts, workspace.by_query_tiles, sizes_.q_tiles, sizes_.k_tiles),
        scratch_([this] { return LookupScratch(sizes_, lookups_.size()); }) {
    std::int64_t first = 0;
    for (const TensorView& gradient : args.score_gradients) {
      first_elements_.push_back(first);
      first += gradient.element_count();
    }
  }

  void run() {
    std::fill_n(workspace_.score_sums, sizes_.score_elements, 0.0);
    const auto wave_size = static_cast<std::size_t>(tiles_per_thread * tbb::this_task_arena::max_concurrency());
    std::vector<TilePosition> wave;
    for_each_tile([&](const TilePosition& at) {
      wave.push_back(at);
      if (wave.size() < wave_size) return;
      add_wave(wave);
      wave.clear();
    });
    add_wave(wave);
    for (std::size_t i = 0; i < args_.score_gradients.size(); ++i) {
      store(args_.score_gradients[i], workspace_.score_sums + first_elements_[i]);
    }
  }

 private:
  template <typename Body>
  void for_each_tile(const Body& body) const {
    const std::int64_t heads = sizes_.shape.query_heads;
    for (std::int64_t row = 0; row < sizes_.shape.batch * heads * sizes_.q_tiles; ++row) {
      const std::int64_t tile = row % sizes_.q_tiles;
      const std::int64_t h = row / sizes_.q_tiles % heads;
      const std::int64_t b = row / sizes_.q_tiles / heads;
      const std::int64_t plan_row = sizes_.plan_row(b, h);
      for (std::int64_t i = 0; i < by_query_.count(plan_row, tile); ++i) {
        body(TilePosition{b, h, tile, by_query_.entry(plan_row, tile, i)});
      }
    }
  }

  void add_wave(const std::vector<TilePosition>& wave) {
    addends_.resize(std::max(addends_.size(), wave.size()));
    tbb::parallel_for(std::size_t{0}, wave.size(), [&](std::size_t i) { collect(wave[i], addends_[i]); });
    for (std::size_t i = 0; i < wave.size(); ++i) {
      for (const Addend& addend : addends_[i]) workspace_.score_sums[addend.element] += addend.value;
    }
  }

  void collect(const TilePosition& at, std::vector<Addend>& addends) {
    LookupScratch& scratch = scratch_.local();
    const std::int64_t rows = sizes_.rows_of(at.q_tile);
    const std::int64_t cols = sizes_.cols_of(at.key.index);
    const std::int64_t q = at.q_tile * sizes_.block_m;
    const std::int64_t k = at.key.index * sizes_.block_n;
    differentiate_scores(context_, workspace_, at, scratch.tile, [&](const float* scores, float* derivatives) {
      const TileFunctions& functions = context_.functions;
      functions.lookup_slope_tiles(context_.score, at.b, at.h, q, k, rows, cols, scores, scratch.slopes.data());
      functions.lookup_element_tiles(context_.score, at.b, at.h, q, k, rows, cols, scores, scratch.elements.data());
      std::fill_n(derivatives, sizes_.block_m * sizes_.block_n, 1.0F);  // gradients of the modified scores
    });
    addends.clear();
    for (std::size_t i = 0; i < lookups_.size(); ++i) collect_lookup(i, rows, cols, scratch, addends);
  }

  /// In the order in which neighbours look up one element, if they do: of these, one addend is made.
  void collect_lookup(std::size_t lookup, std::int64_t rows, std::int64_t cols, const LookupScratch& scratch,
                      std::vector<Addend>& addends) const {
    const bool along_rows = lookups_[lookup].by_query();
    const std::int64_t outer = along_rows ? rows : cols;
    const std::int64_t inner = along_rows ? cols : rows;
    const std::int64_t first = first_elements_[static_cast<std::size_t>(lookups_[lookup].gradient)];
    const auto tile = static_cast<std::int64_t>(lookup) * sizes_.block_m * sizes_.block_n;
    const TileBits bits{scratch.tile.visibility.words(), sizes_.block_n / vector_columns};
    const std::size_t own = addends.size();
    for (std::int64_t i = 0; i < outer; ++i) {
      for (std::int64_t j = 0; j < inner; ++j) {
        const std::int64_t row = along_rows ? i : j;
        const std::int64_t col = along_rows ? j : i;
        const std::int64_t pair = row * sizes_.block_n + col;
        const std::int64_t element = scratch.elements[static_cast<std::size_t>(tile + pair)];
        if (element < 0 || (bits.words != nullptr && !bits.visible(row, col))) continue;
        const double value = double{scratch.tile.gradients.data()[pair]} * double{scratch.slopes.data()[tile + pair]};
        if (addends.size() > own && addends.back().element == first + element) {
          addends.back().value += value;
        } else {
          addends.push_back({first + element, value});
        }
      }
    }
  }

  /// `sums` are those of its elements, row by row.
  static void store(const TensorView& gradient, const double* sums) {
    tbb::parallel_for(std::int64_t{0}, gradient.element_count(), [&](std::int64_t element) {
      std::int64_t offset = 0;
      std::int64_t rest = element;
      for (auto axis = static_cast<std::size_t>(gradient.rank); axis-- > 0;) {
        offset += rest % gradient.shape[axis] * gradient.strides[axis];
        rest /= gradient.shape[axis];
      }
      static_cast<float*>(gradient.data)[offset] = static_cast<float>(sums[element]);
    });
  }

  const TileContext& context_;
  const CallSizes& sizes_;
  const backend::LaunchArgs& args_;
  const Workspace& workspace_;
  const std::vector<kernel::ScoreLookup>& lookups_;
  TileLists by_query_;
  tbb::enumerable_thread_specific<LookupScratch> scratch_;
  std::vector<std::int64_t> first_elements_;  // of every gradient, in the sums
  std::vector<std::vector<Addend>> addends_;  // of every tile of a wave
};

}  // namespace

void differentiate_looked_up(const TileContext& context, const backend::LaunchArgs& args, const Workspace& workspace,
                             const std::vector<kernel::ScoreLookup>& lookups) {
  LookedUp(context, args, workspace, lookups).run();
}

}  // namespace flashspan::cpu
