// forward_hopper.cuh -- forward attention for sm_90a: a persistent block of one producer warpgroup, whose one thread
// feeds shared memory by the copy engine, and consumer warpgroups of 64 query rows each that compute by wgmma. The
// order of products and softmax follows FlashAttention-3 (arXiv 2407.08608): scores of the next tile are computed
// while the weights of this one are made, and the two warpgroups take turns at issuing.
#pragma once

#include "attention/pair_flags.cuh"
#include "attention/portions.cuh"
#include "attention/row_items.cuh"
#include "attention/warpgroup_work.cuh"
#include "generated/warpgroup_products.cuh"
#include "ptx/tensor_copy.cuh"

namespace flashspan_device {

constexpr int consumer_warpgroups = num_warps / 4;
// Registers a thread has at the start are shared out anew: a producer needs few (PTX ISA, setmaxnreg; the sum over all
// warpgroups stays within 512).
constexpr int producer_registers = consumer_warpgroups == 3 ? 32 : 40;
constexpr int consumer_registers = consumer_warpgroups == 3 ? 160 : 232;
constexpr int hopper_threads = (num_warps + 4) * 32;
static_assert(block_m == consumer_warpgroups * 64 && block_n % 16 == 0 && (block_n <= 128 || !has_plan));

constexpr int query_panels = (head_dim_qk + panel_columns - 1) / panel_columns;
constexpr int value_panels = (head_dim_v + panel_columns - 1) / panel_columns;
constexpr int query_panel_bytes = block_m * panel_row_bytes;
constexpr int key_panel_bytes = block_n * panel_row_bytes;
constexpr int query_bytes = query_panels * query_panel_bytes;
constexpr int key_bytes = query_panels * key_panel_bytes;
constexpr int value_bytes = value_panels * key_panel_bytes;

/// The entry of a key tile, and whether something of the tile after it is hidden.
struct StageEntry {
  TileEntry tile;
  u32 next_hides;
};
/// Whether the mask or the end of the keys hides something of a tile.
__device__ __forceinline__ bool hides_some(const AttentionParameters& p, const TileEntry& entry) {
  return entry.mask != full_tile || (entry.tile + 1) * block_n > p.kv_len;
}

/// Shared memory that is no tile.
struct Exchange {
  TransferBarrier query_full[query_stages], query_empty[query_stages];
  TransferBarrier key_full[num_stages], key_empty[num_stages];
  TransferBarrier value_full[num_stages], value_empty[num_stages];
  TransferBarrier value_raw[num_stages];  // arrived, to be cleaned
  StageEntry entries[num_stages];         // of the key tiles
  ItemSlots items;
  PortionTable portions;
};

constexpr int first_key_offset = query_stages * query_bytes;
constexpr int first_value_offset = first_key_offset + num_stages * key_bytes;
constexpr int exchange_offset = first_value_offset + num_stages * value_bytes;
static_assert(exchange_offset + static_cast<int>(sizeof(Exchange)) <= shared_bytes, "host and device agree");

/// The one thread that starts all copies.
struct Producer {
  const AttentionParameters& p;
  const TensorMaps& maps;
  Exchange& exchange;
  u32 shared;
  Ring<num_stages> key = {0, 1};
  Ring<num_stages> value = {0, 1};
  Ring<query_stages> query = {0, 1};

  __device__ __forceinline__ void copy_query(const WorkItem& item) {
    exchange.query_empty[query.index].wait(query.parity);
    TransferBarrier& full = exchange.query_full[query.index];
    full.arrive_and_expect(query_bytes);
    const u32 to = shared + query.index * query_bytes;
#pragma unroll
    for (int panel = 0; panel < query_panels; ++panel) {
      copy_box(to + panel * query_panel_bytes, &maps.query, full, panel * panel_columns, item.query_tile * block_m,
               item.h, item.b);
    }
    query.advance();
  }
  __device__ __forceinline__ void copy_key(const TileEntry& entry, const TileEntry& next, int kv_head, int b) {
    exchange.key_empty[key.index].wait(key.parity);
    exchange.entries[key.index] = {entry, static_cast<u32>(hides_some(p, next))};
    TransferBarrier& full = exchange.key_full[key.index];
    full.arrive_and_expect(key_bytes);
    const u32 to = shared + first_key_offset + key.index * key_bytes;
#pragma unroll
    for (int panel = 0; panel < query_panels; ++panel) {
      copy_box(to + panel * key_panel_bytes, &maps.key, full, panel * panel_columns, entry.tile * block_n, kv_head, b);
    }
    key.advance();
  }
  __device__ __forceinline__ void copy_value(int tile, int kv_head, int b, bool careful) {
    exchange.value_empty[value.index].wait(value.parity);
    TransferBarrier& full = careful ? exchange.value_raw[value.index] : exchange.value_full[value.index];
    full.arrive_and_expect(value_bytes);
    const u32 to = shared + first_value_offset + value.index * value_bytes;
#pragma unroll
    for (int panel = 0; panel < value_panels; ++panel) {
      copy_box(to + panel * key_panel_bytes, &maps.value, full, panel * panel_columns, tile * block_n, kv_head, b);
    }
    value.advance();
  }

  __device__ __forceinline__ void run() {
    Ring<item_slots> slot;
    const int group = p.query_heads / p.kv_heads;
    while (true) {
      exchange.items.full[slot.index].wait(slot.parity);
      const WorkItem item = exchange.items.item[slot.index];
      exchange.items.empty[slot.index].arrive();
      slot.advance();
      if (item.list.count == no_more_items) return;
      if (item.list.count <= 0) continue;
      const int kv_head = item.h / group;
      copy_query(item);
      // Values come one tile behind the keys, as they are needed. Entries are asked for one tile ahead, so that no copy
      // waits for one.
      TileEntry next = item.list.entry(0);
      int tile = 0;
#pragma unroll 1
      for (int i = 0; i <= item.list.count; ++i) {
        const int before = tile;
        if (i < item.list.count) {
          const TileEntry entry = next;
          if (i + 1 < item.list.count) next = item.list.entry(i + 1);
          copy_key(entry, next, kv_head, item.b);
          tile = entry.tile;
        }
        if (i > 0) copy_value(before, kv_head, item.b, has_plan && item.careful != 0);
      }
    }
  }
};

/// Finds out what portion `number` of all rows is. The portions of a row differ by a tile at most.
__device__ __forceinline__ void look_up_portion(WorkItem& item, const AttentionParameters& p, const PortionTable& table,
                                                int rows, int number) {
  const int row = table.row_of(number, rows);
  look_up(item, p, row);
  item.first_portion = table.first[row];
  item.portion = number;
  item.portions = table.first[row + 1] - item.first_portion;
  const long long tiles = item.list.count;
  const int within = number - item.first_portion;
  item.list.first = static_cast<int>(tiles * within / item.portions);
  item.list.count = static_cast<int>(tiles * (within + 1) / item.portions) - item.list.first;
}

/// The one thread that finds work; see hand_out_rows().
__device__ __forceinline__ void hand_out_items(const AttentionParameters& p, Exchange& exchange) {
  const int rows = rows_of_tiles(p);
  const int items = split_rows ? exchange.portions.first[rows] : rows;
  hand_out_rows(p, exchange.items, items, [&](WorkItem& item, int number) {
    if constexpr (split_rows) {
      look_up_portion(item, p, exchange.portions, rows, number);
    } else {
      look_up(item, p, number);
    }
  });
}

constexpr int cleaning_threads = 64;
constexpr int cleaning_barrier = 4;

/// Two warps that replace what is not finite in value tiles of careful items by 0, where the tile hides something.
__device__ __forceinline__ void clean_values(Exchange& exchange, unsigned char* values) {
  const int thread = static_cast<int>(threadIdx.x) % cleaning_threads;
  Ring<item_slots> slot;
  Ring<num_stages> value;
  u32 raw_parity = 0;  // a bit per stage
  while (true) {
    exchange.items.full[slot.index].wait(slot.parity);
    const TileList list = exchange.items.item[slot.index].list;
    const bool careful = exchange.items.item[slot.index].careful != 0;
    exchange.items.empty[slot.index].arrive();
    slot.advance();
    if (list.count == no_more_items) return;
#pragma unroll 1
    for (int i = 0; i < list.count; ++i, value.advance()) {
      if (!careful) continue;
      exchange.value_raw[value.index].wait(raw_parity >> value.index & 1);
      raw_parity ^= 1u << value.index;
      if (list.entry(i).mask != full_tile) {
        EightElements* const tile =
            reinterpret_cast<EightElements*>(values + static_cast<long long>(value.index) * value_bytes);
#pragma unroll 1
        for (int chunk = thread; chunk < value_bytes / 16; chunk += cleaning_threads) {
          EightElements elements = tile[chunk];
          take_non_finite_out<is_bf16>(elements);
          tile[chunk] = elements;
        }
      }
      products_see_stores();
      named_barrier_wait(cleaning_barrier, cleaning_threads);
      if (thread == 0) exchange.value_full[value.index].arrive();
    }
  }
}

/// An entry that all lanes have read, known to the compiler to be the same in all: branches on it may then use uniform
/// registers, which takes a while, so this is for tiles that hide something.
__device__ __forceinline__ TileEntry same_in_all_lanes(const TileEntry& entry) {
  if constexpr (!has_plan) return entry;
  return TileEntry{__shfl_sync(0xffffffffu, entry.tile, 0), __shfl_sync(0xffffffffu, entry.mask, 0), 0};
}

/// Columns of one row that a lane holds: element e is column 8 (e / 2) + e % 2 past the lane's first. Words hold a flag
/// for each.
constexpr int elements_per_row = block_n / 4;
constexpr int words_per_lane_row = (elements_per_row + 31) / 32;

/// Flags of a lane's two rows.
struct VisibleWords {
  u32 row[2][words_per_lane_row];
};

/// Turns of the consumer warpgroups at starting products, so that the softmax of one runs beside the products of
/// another. Named barrier 1 + w lets warpgroup w through.
struct Turns {
  static constexpr bool taken = padded_v <= 128 && consumer_warpgroups > 1;
  int warpgroup;

  __device__ __forceinline__ void begin() const {
    if (taken && warpgroup == consumer_warpgroups - 1) named_barrier_arrive(1, 2 * warpgroup_threads);
  }
  __device__ __forceinline__ void wait() const {
    if (taken) named_barrier_wait(1 + warpgroup, 2 * warpgroup_threads);
  }
  __device__ __forceinline__ void pass() const {
    if (taken) {
      named_barrier_arrive(warpgroup == consumer_warpgroups - 1 ? 1 : 2 + warpgroup, 2 * warpgroup_threads);
    }
  }
};

/// How a product of query and key becomes a score, and a score a weight: weight = 2^(score * exponent - ...).
struct ScoreScale {
  float scale;
  bool multiply;   // scores are multiplied first: a score program needs their value, and a maximum their order
  float exponent;  // log2(e), times the scale if the score is the plain product

  __device__ __forceinline__ explicit ScoreScale(float scale)
      : scale(scale), multiply(has_score || !(scale > 0.f)), exponent(multiply ? log2_e : scale * log2_e) {}
  /// Natural logarithm of the weight of this score.
  __device__ __forceinline__ float natural(float score) const { return multiply ? score : score * scale; }
};

/// Ranges of visible keys of a lane's two rows, where the mask has them. They end with the keys at the latest.
struct RowRanges {
  static constexpr int count = MaskProgram::row_ranges > 0 ? MaskProgram::row_ranges : 1;
  int begin[2][count];
  int end[2][count];
};

/// One consumer warpgroup's view of an item.
struct Consumer {
  const AttentionParameters& p;
  const ProgramArguments& mask;
  const ProgramArguments& score;
  ScoreScale scale;
  int b;
  int h;
  int row;      // in the tile: this lane's first; its second is eight below
  int column;   // in the tile: this lane's first
  int first_q;  // the lane's first row in the tensor
  RowRanges ranges;

  __device__ __forceinline__ void look_up_ranges() {
    if constexpr (lowering == Lowering::row_ranges) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        MaskProgram::ranges_of_row(mask, b, h, first_q + 8 * half, p.q_len, p.kv_len, ranges.begin[half],
                                   ranges.end[half]);
#pragma unroll
        for (int& end : ranges.end[half]) end = end < p.kv_len ? end : p.kv_len;
      }
    }
  }

  /// Words that do not come from ranges. Called before a tile's scores are asked for: bits then arrive beside the
  /// product, and an evaluation finds the registers free that the scores will take.
  __device__ __forceinline__ void prepare_words(VisibleWords& words, const TileEntry& entry) const {
    if constexpr (lowering == Lowering::none || lowering == Lowering::row_ranges) return;
    if (entry.mask >= 0) {
      const long long first = (static_cast<long long>(entry.mask) * block_m + row) * 4 + column / 2;
      words.row[0][0] = p.by_query.bits[first];
      words.row[1][0] = p.by_query.bits[first + 32];
    }
    if (entry.mask != evaluated_tile) return;
    u32 found[2];
    evaluate_pairs<true, elements_per_row>(found, mask, computed_here(b), computed_here(h), computed_here(first_q),
                                           entry.tile * block_n + column, p.q_len, p.kv_len);
    words.row[0][0] = found[0];
    words.row[1][0] = found[1];
  }

  /// Whether scores are to be changed before they become weights, also where nothing is hidden.
  __device__ __forceinline__ bool changes_scores() const { return has_score || scale.multiply; }

  /// Scores of one tile as the softmax takes them; hidden ones are -inf.
  __device__ __forceinline__ void finish(float (&scores)[block_n / 2], VisibleWords& words,
                                         const TileEntry& seen) const {
    const int first_k = seen.tile * block_n;
    if (has_score) {
#pragma unroll
      for (int i = 0; i < block_n / 2; ++i) {
        const int q = first_q + i / 2 % 2 * 8;
        const int k = first_k + column + i / 4 * 8 + i % 2;
        scores[i] = MaskProgram::score(score, b, h, q, k, p.q_len, p.kv_len, scores[i] * p.scale);
      }
    } else if (scale.multiply) {
#pragma unroll
      for (int i = 0; i < block_n / 2; ++i) scores[i] *= p.scale;
    }
    const TileEntry entry = same_in_all_lanes(seen);
    const bool tail = first_k + block_n > p.kv_len;
    if (entry.mask == full_tile && !tail) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int word = 0; word < words_per_lane_row; ++word) {
        u32& flags = words.row[half][word];
        if constexpr (lowering == Lowering::row_ranges) {
          flags = flags_of_ranges(half, word, first_k + column);
        } else {
          if (entry.mask == full_tile) flags = 0xffffffffu;
          if (tail) flags &= columns_below(p.kv_len - first_k - column, word);
        }
      }
#pragma unroll
      for (int e = 0; e < elements_per_row; ++e) {
        if ((words.row[half][e / 32] >> e % 32 & 1u) == 0) scores[e / 2 * 4 + e % 2 + 2 * half] = minus_infinity();
      }
    }
  }

  __device__ __forceinline__ u32 flags_of_ranges(int half, int word, int first_column) const {
    u32 flags = 0;
#pragma unroll
    for (int range = 0; range < RowRanges::count; ++range) {
      flags |= columns_below(ranges.end[half][range] - first_column, word) &
               ~columns_below(ranges.begin[half][range] - first_column, word);
    }
    return flags;
  }
};

/// Weights rounded to the 16-bit format, as operand fragments: element i and i + 1 make register i / 2.
__device__ __forceinline__ void pack_weights(u32 (&weights)[block_n / 4], const float (&scores)[block_n / 2]) {
#pragma unroll
  for (int i = 0; i < block_n / 2; i += 2) weights[i / 2] = pack_pair<is_bf16>(scores[i], scores[i + 1]);
}

/// Ends a basic block with a branch, nearly never taken, on a sum of weights, and makes `values` depend on it: what the
/// sum is made of is computed before what follows, and what is made of the values after it. Without it ptxas moves the
/// wait for the product that runs beside the softmax up in front of the softmax, and nothing runs beside anything.
__device__ __forceinline__ void hold_until(float sum, float (&values)[2]) {
  if (__any_sync(0xffffffffu, sum > 1e30f) != 0) {
    __nanosleep(1);  // no instruction that could be predicated instead of jumped over
    asm volatile("add.f32 %0, %0, 0f00000000;\nadd.f32 %1, %1, 0f00000000;" : "+f"(values[0]), "+f"(values[1]));
  }
}

/// Running reference and sum of a lane's two rows. Weights are 2^((score - reference) * exponent), and a row's
/// reference is the maximum of the first tile that it sees something of, not of all so far: it is far enough from any
/// later score for weights to be finite, nearly always, and weights above 1 are as exact as others. So a tile needs no
/// maximum before its weights, and results are rescaled only where weights have become large. No row's results depend
/// on what another row sees. The sum is that of the lane's own columns until finish().
struct RunningSoftmax {
  float exponent;
  const u32& careful;  // in shared memory; not 0 if a weight was out of range when maxima were not looked at
  bool looks = true;   // at maxima before weights; the same in all lanes of a warp
  float reference[2] = {minus_infinity(), minus_infinity()};
  float sum[2] = {0.f, 0.f};

  __device__ __forceinline__ RunningSoftmax(float exponent, const u32& careful)
      : exponent(exponent), careful(careful) {}

  /// Scores become weights, which are packed as operands. True, in all lanes of a warp, if references have moved:
  /// results of earlier tiles are then worth `rescale` of what they were. An overflow leaves a sum that is not finite.
  /// `plain`: in no lane do scores have to be changed or looked at first; else finish_scores() is called.
  /// before_packing() is called when most weights are made: packing takes turns with making the rest.
  template <typename FinishScores, typename BeforePacking>
  __device__ __forceinline__ bool update(float (&scores)[block_n / 2], u32 (&weights)[block_n / 4], float (&rescale)[2],
                                         bool plain, const FinishScores& finish_scores,
                                         const BeforePacking& before_packing) {
    float less[2] = {reference[0] * exponent, reference[1] * exponent};
    bool moved = false;
    rescale[0] = rescale[1] = 1.f;
    if (!plain) {
      finish_scores();
      moved = looks;
      if (moved) look(scores, less, rescale);
    }
    float added[2] = {0.f, 0.f};
    make_weights<0, most_columns>(scores, less, added);
    hold_until(added[0] + added[1], less);
    before_packing();
    make_weights<most_columns, block_n>(scores, less, added);
    pack_weights(weights, scores);
    if (__any_sync(0xffffffffu, added[0] > most_added || added[1] > most_added) != 0) {
      lower(scores, added, rescale);
      pack_weights(weights, scores);
      moved = true;
    }
    sum[0] += added[0];
    sum[1] += added[1];
    return moved;
  }

  // Three warpgroups keep the exponentials busy by themselves, and wait for products longer.
  static constexpr int most_columns = consumer_warpgroups == 3 ? block_n : block_n / 16 * 8;

  /// Of the accumulator columns [first, last).
  template <int first, int last>
  __device__ __forceinline__ void make_weights(float (&scores)[block_n / 2], const float (&less)[2],
                                               float (&added)[2]) const {
#pragma unroll
    for (int i = first / 2; i < last / 2; i += 2) {
      const int half = i / 2 % 2;
      scores[i] = exp2_fast(scores[i] * exponent - less[half]);
      scores[i + 1] = exp2_fast(scores[i + 1] * exponent - less[half]);
      added[half] += scores[i] + scores[i + 1];
    }
  }

  /// Up to here the rounding error of a reference times the exponent is too small a power of two to show in a weight of
  /// 8 bits. Beyond, and where the product overflows, references are subtracted before the product: one rounding more
  /// for each score. Such rows' references are always the maximum.
  static constexpr float largest_exact = 16384.f;
  /// So much above the reference a score's weight is near the end of the range.
  static constexpr float largest_power = 100.f;
  /// Sum of a lane's weights in a tile past which they get a new reference. Every one of them is a binary16.
  static constexpr float most_added = 16384.f;
  static constexpr float most_lowered = 0x1p126f;

  /// Rows that saw nothing have no reference, and no scores but -inf.
  __device__ __forceinline__ float subtracted(int half) const {
    return reference[half] == minus_infinity() ? 0.f : reference[half] * exponent;
  }
  __device__ __forceinline__ bool is_large(int half) const { return fabsf(subtracted(half)) > largest_exact; }

  /// Before the weights: moves the references of rows that had none, or to which a score would be out of range.
  __device__ __forceinline__ void look(float (&scores)[block_n / 2], float (&less)[2], float (&rescale)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int first = 2 * half;
      float highest = fmaxf(scores[first], scores[first + 1]);
#pragma unroll
      for (int i = first + 4; i < block_n / 2; i += 4) highest = fmaxf(highest, fmaxf(scores[i], scores[i + 1]));
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
      const bool moves =
          is_large(half) ? highest > reference[half] : (highest - reference[half]) * exponent > largest_power;
      rescale[half] = exp2_fast((moves ? reference[half] - highest : 0.f) * exponent);
      reference[half] = moves ? highest : reference[half];
      sum[half] *= rescale[half];
      less[half] = subtracted(half);
    }
    if (__any_sync(0xffffffffu, is_large(0) || is_large(1)) != 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float least = is_large(half) ? reference[half] : 0.f;
        if (is_large(half)) less[half] = 0.f;
#pragma unroll
        for (int i = 2 * half; i < block_n / 2; i += 4) {
          scores[i] -= least;
          scores[i + 1] -= least;
        }
      }
    }
    look_again();
  }

  /// After the weights: lowers those of rows that have large ones, by a new reference. Infinite ones stay, and sums of
  /// which the factor would be no normal number, which exp2_fast makes 0, are made infinite.
  __device__ __forceinline__ void lower(float (&weights)[block_n / 2], float (&added)[2], float (&rescale)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = fmaxf(added[half], __shfl_xor_sync(0xffffffffu, added[half], 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const bool lowers = largest > most_added && largest < most_lowered;
      const float next = reference[half] + __fdividef(log2_fast(lowers ? largest : 1.f), exponent);
      const float factor = exp2_fast((lowers ? reference[half] - next : 0.f) * exponent);
      reference[half] = lowers ? next : reference[half];
      rescale[half] *= factor;
      sum[half] *= factor;
      added[half] = largest >= most_lowered ? -minus_infinity() : added[half] * factor;
#pragma unroll
      for (int i = 2 * half; i < block_n / 2; i += 4) {
        weights[i] *= factor;
        weights[i + 1] *= factor;
      }
    }
    look_again();
  }

  __device__ __forceinline__ void look_again() {
    const bool mine = careful != 0 || reference[0] == minus_infinity() || reference[1] == minus_infinity() ||
                      is_large(0) || is_large(1);
    looks = __any_sync(0xffffffffu, mine) != 0;
  }

  /// In every lane of a warp: whether a sum is infinite or NaN.
  __device__ __forceinline__ bool overflowed() const { return any_non_finite(sum); }

  /// Sums of the four lanes that share a row.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
    }
  }
};

__device__ __forceinline__ void scale_results(float (&out)[padded_v / 2], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < padded_v / 2; ++i) out[i] *= factor[i / 2 % 2];
}

/// Writes what a warp has found out about its 16 rows: results and LSE.
__device__ __forceinline__ void finish_rows(const Consumer& c, RunningSoftmax& softmax,
                                            const float (&out)[padded_v / 2]) {
  softmax.finish();
  const float maximum[2] = {c.scale.natural(softmax.reference[0]), c.scale.natural(softmax.reference[1])};
  float factor[2];
  end_rows(c.p, c.b, c.h, c.first_q, maximum, softmax.sum, factor);
  unsigned short* const matrix = matrix_of(c.p.out, c.b, c.h);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int q = c.first_q + 8 * half;
    store_row<padded_v>(matrix + q * c.p.out.stride_row, out, half, factor[half], q < c.p.q_len, head_dim_v);
  }
}

/// Adds to a warp's 16 rows of results the non-finite values that they see and that a careful item's partial tiles were
/// cleaned of. Rare, so written for size.
__device__ inline void add_what_was_cleaned(const Consumer& c, const TileList& list) {
  __syncwarp();
  const int first_q = __shfl_sync(0xffffffffu, c.first_q, 0);
  const int kv_head = c.h / (c.p.query_heads / c.p.kv_heads);
  const unsigned short* const value = matrix_of(c.p.value, c.b, kv_head);
  const int rows = c.p.q_len - first_q < 16 ? c.p.q_len - first_q : 16;
  const GlobalRows<unsigned short> results = {matrix_of(c.p.out, c.b, c.h) + first_q * c.p.out.stride_row,
                                              c.p.out.stride_row, rows};
#pragma unroll 1
  for (int i = 0; i < list.count; ++i) {
    const TileEntry entry = list.entry(i);
    if (entry.mask == full_tile) continue;
    const int first_k = entry.tile * block_n;
    const GlobalRows<const unsigned short> values = {value + first_k * c.p.value.stride_row, c.p.value.stride_row,
                                                     c.p.kv_len - first_k < block_n ? c.p.kv_len - first_k : block_n};
    add_visible_non_finite<is_bf16, 32>(results, values, head_dim_v, [&](int row, int key_row) {
      return MaskProgram::visible(c.mask, computed_here(c.b), computed_here(c.h), first_q + row, first_k + key_row,
                                  c.p.q_len, c.p.kv_len);
    });
  }
}

/// Whether a warp's rows have to be worked on again: by a hidden value, or because a weight was out of range.
__device__ __forceinline__ bool is_spoilt(const RunningSoftmax& softmax, const float (&out)[padded_v / 2]) {
  return softmax.overflowed() || (has_plan && any_non_finite(out));
}

/// After the last tile of a portion, by a warp: keeps what it has found out about its rows until the last portion of
/// the row is done, and then puts the row together. True if the portion has to be worked on again.
__device__ __forceinline__ bool conclude_portion(const Consumer& c, RunningSoftmax& softmax, float (&out)[padded_v / 2],
                                                 const WorkItem& item) {
  const int warp = c.row / 16;
  if (item.is_done(warp)) return false;
  if (item.careful == 0 && is_spoilt(softmax, out)) return true;
  bool was_cleaned = item.careful != 0;
  if (item.portions > 1) {
    if (warp >= c.p.split.warps) return false;
    PartialRows::of(c.p.split, item.portion, warp).store(out, softmax.reference, softmax.sum);
    int* const ticket = c.p.split.tickets + static_cast<long long>(item.row) * c.p.split.warps + warp;
    const Arrivals arrivals = Arrivals::add(ticket, item.portions, was_cleaned);
    if (!arrivals.all) return false;
    combine_portions(c.p.split, item.first_portion, item.portions, warp, c.scale.exponent, out, softmax.reference,
                     softmax.sum);
    was_cleaned = arrivals.any_careful;
  }
  finish_rows(c, softmax, out);
  if (has_plan && was_cleaned) add_what_was_cleaned(c, list_of_row(c.p, c.b, c.h, item.query_tile));
  return false;
}

/// After the last tile of a whole row, by a warp: writes results. True if the row has to be worked on again.
__device__ __forceinline__ bool conclude_row(const Consumer& c, RunningSoftmax& softmax,
                                             const float (&out)[padded_v / 2], const WorkItem& item) {
  if (item.is_done(c.row / 16)) return false;
  finish_rows(c, softmax, out);
  if (item.careful == 0) return is_spoilt(softmax, out);
  if (has_plan) add_what_was_cleaned(c, item.list);
  return false;
}

/// Where a consumer warpgroup takes its tiles of keys and values from.
struct Supply {
  Exchange& exchange;
  u32 shared;
  Turns turns;
  bool first_lane;  // of its warp: the one that gives back
  Ring<num_stages> key;
  Ring<num_stages> value;
  Ring<query_stages> query_tile;
  int values_in_use;  // stage of the last product's

  __device__ __forceinline__ void release(TransferBarrier& barrier) const {
    __syncwarp();
    if (first_lane) barrier.arrive();
  }
  __device__ __forceinline__ u64 query() const {
    return operand_descriptor(shared + query_tile.index * query_bytes + turns.warpgroup * 64 * panel_row_bytes, 0);
  }
  __device__ __forceinline__ u64 keys() const {
    return operand_descriptor(shared + first_key_offset + key.index * key_bytes, 0);
  }
  /// Those that have been waited for.
  __device__ __forceinline__ u64 take_values() {
    values_in_use = value.index;
    value.advance();
    return operand_descriptor(shared + first_value_offset + values_in_use * value_bytes, key_panel_bytes);
  }
  __device__ __forceinline__ void wait_for_query() const {
    exchange.query_full[query_tile.index].wait(query_tile.parity);
  }
  __device__ __forceinline__ void give_back_query() {
    release(exchange.query_empty[query_tile.index]);
    query_tile.advance();
  }
  __device__ __forceinline__ void wait_for_keys() const { exchange.key_full[key.index].wait(key.parity); }
  __device__ __forceinline__ void wait_for_values() const { exchange.value_full[value.index].wait(value.parity); }
  /// With a plan by every lane: all have read the entry, and racecheck knows of no other order of that and the next.
  __device__ __forceinline__ void give_back_keys() {
    if constexpr (has_plan) {
      exchange.key_empty[key.index].arrive();
    } else {
      release(exchange.key_empty[key.index]);
    }
    key.advance();
  }
  /// Those of the last product, if there was one.
  __device__ __forceinline__ void give_back_values(bool taken = true) const {
    __syncwarp();
    if (first_lane && taken) exchange.value_empty[values_in_use].arrive();
  }
  /// The i-th entry of the item's list, which came with its keys: one from the list itself would be waited for before
  /// every product.
  __device__ __forceinline__ TileEntry entry(int first_tile, int i) const {
    if constexpr (!has_plan) return TileEntry{first_tile + i, full_tile, 0};
    return exchange.entries[key.index].tile;
  }
  /// Of the tile after it. This came with the same keys: there is time to read it while they are multiplied.
  __device__ __forceinline__ bool next_hides_some(const AttentionParameters& p, int first_tile, int i) const {
    if constexpr (!has_plan) return hides_some(p, TileEntry{first_tile + i + 1, full_tile, 0});
    return exchange.entries[key.index].next_hides != 0;
  }
  __device__ __forceinline__ bool sees_nothing(const TileEntry& entry) const {
    return has_plan && __any_sync(0xffffffffu, (entry.unseeing >> turns.warpgroup & 1u) != 0) != 0;
  }
  /// A tile of which this warpgroup's rows see nothing contributes nothing: its keys and values are given back unread.
  __device__ __forceinline__ void skip_tile() {
    turns.wait();
    turns.pass();
    give_back_keys();
    wait_for_values();
    take_values();
    give_back_values();
  }
};

/// Consumer warpgroup `warpgroup`: all its items, one after the other.
__device__ __forceinline__ void consume(const AttentionParameters& p, const ProgramArguments& mask,
                                        const ProgramArguments& score, Exchange& exchange, u32 shared, int warpgroup) {
  const Turns turns = {warpgroup};
  const FragmentPlace place = FragmentPlace::of_lane();
  const int row = warpgroup * 64 + static_cast<int>(threadIdx.x) % warpgroup_threads / 32 * 16 + place.row;
  const bool first_lane = threadIdx.x % 32 == 0;
  Supply supply = {exchange, shared, turns, first_lane, {}, {}, {}, 0};
  Ring<item_slots> slot;
  turns.begin();
  while (true) {
    exchange.items.full[slot.index].wait(slot.parity);
    const WorkItem item = exchange.items.item[slot.index];
    if (item.list.count == no_more_items) return;
    if (item.list.count == no_item) {
      exchange.items.empty[slot.index].arrive();
      slot.advance();
      continue;
    }
    Consumer c = {
        p, mask, score, ScoreScale(p.scale), item.b, item.h, row, place.column, item.query_tile * block_m + row, {}};
    c.look_up_ranges();
    const int count = item.list.count;
    const int first_tile = split_rows ? item.list.first : 0;
    float out[padded_v / 2];
#pragma unroll
    for (int i = 0; i < padded_v / 2; ++i) out[i] = 0.f;
    RunningSoftmax softmax(c.scale.exponent, exchange.items.item[slot.index].careful);
    float scores[block_n / 2];
    u32 weights[block_n / 4];
    float rescale[2];
    VisibleWords words;
    const auto multiply_values = [&] {
      supply.wait_for_values();
      products_fence();
      accumulate_values(out, weights, supply.take_values());
      close_product_group();
    };
    if (count > 0) supply.wait_for_query();
    // Runs of tiles that this warpgroup sees something of: all tiles, where there is no plan.
#pragma unroll 1
    for (int i = 0; i < count;) {
      const int run_start = i;
      bool plain = false;
      // The first tile of a run, which has no product of values beside its scores, takes the same way as all others: a
      // second softmax would be a fifth of what there is to compile.
#pragma unroll 1
      for (; i < count; ++i) {
        supply.wait_for_keys();
        const bool plain_now = plain && !softmax.looks;
        TileEntry entry = {};
        if (!plain_now) {
          entry = supply.entry(first_tile, i);
          if (supply.sees_nothing(entry)) break;
          c.prepare_words(words, same_in_all_lanes(entry));
        }
        turns.wait();
        pin(out);
        pin(weights);
        products_fence();
        multiply_scores(scores, supply.query(), supply.keys());
        close_product_group();
        const bool next_hides = supply.next_hides_some(p, first_tile, i);
        if (i > run_start) {
          multiply_values();
          turns.pass();
          wait_for_products<1>();
        } else {
          turns.pass();
          wait_for_products<0>();
        }
        pin(scores);
        plain = __any_sync(0xffffffffu, next_hides || c.changes_scores()) == 0;
        supply.give_back_keys();
        const auto finish_scores = [&] { c.finish(scores, words, entry); };
        const bool moved = softmax.update(scores, weights, rescale, plain_now, finish_scores, [&] {
          wait_for_products<0>();
          pin(out);
          pin(weights);
          supply.give_back_values(i > run_start);
        });
        if (moved) scale_results(out, rescale);
      }
      if (i == count) supply.give_back_query();
      if (i > run_start) {
        multiply_values();
        wait_for_products<0>();
        pin(out);
        supply.give_back_values();
      }
      if (i < count) {
        supply.skip_tile();
        if (++i == count) supply.give_back_query();
      }
    }
    // The item is read again: what only its end needs would else stay in registers.
    const WorkItem& done = exchange.items.item[slot.index];
    bool spoilt;
    if constexpr (split_rows) {
      spoilt = conclude_portion(c, softmax, out, done);
    } else {
      spoilt = conclude_row(c, softmax, out, done);
    }
    if (spoilt && first_lane) atomicOr(&exchange.items.spoilt[slot.index], 1u << row / 16);
    exchange.items.empty[slot.index].arrive();
    slot.advance();
  }
}

}  // namespace flashspan_device

extern "C" __global__ void __launch_bounds__(flashspan_device::hopper_threads, 1)
    attention_forward(const __grid_constant__ flashspan_device::AttentionParameters p,
                      const __grid_constant__ flashspan_device::ProgramArguments mask,
                      const __grid_constant__ flashspan_device::ProgramArguments score,
                      const __grid_constant__ flashspan_device::TensorMaps maps) {
  using namespace flashspan_device;
  extern __shared__ __align__(1024) unsigned char shared[];
  Exchange& exchange = *reinterpret_cast<Exchange*>(shared + exchange_offset);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < query_stages; ++stage) {
      exchange.query_full[stage].init(1);
      exchange.query_empty[stage].init(num_warps);
    }
    for (int stage = 0; stage < num_stages; ++stage) {
      exchange.key_full[stage].init(1);
      exchange.key_empty[stage].init(has_plan ? num_warps * 32 : num_warps);
      exchange.value_full[stage].init(1);
      exchange.value_empty[stage].init(num_warps);
      exchange.value_raw[stage].init(1);
    }
    // Every thread that reads items: those that compute, the one that copies, and those that clean.
    exchange.items.init(num_warps * 32 + 1 + (has_plan ? cleaning_threads : 0));
    barriers_visible();
  }
  __syncthreads();
  if constexpr (split_rows) {
    exchange.portions.divide(rows_of_tiles(p), [&p](int row) {
      WorkItem item;
      look_up(item, p, row);
      return item.list.count;
    });
  }
  // Through a shuffle, so that the compiler knows it is the same in all lanes and keeps what follows from it in uniform
  // registers, where descriptors have to be.
  const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / warpgroup_threads, 0);
  if (warpgroup == 0) {
    shrink_registers<producer_registers>();
    if (threadIdx.x == 0) {
      prefetch_map(&maps.query);
      prefetch_map(&maps.key);
      prefetch_map(&maps.value);
      Producer{p, maps, exchange, shared_address(shared)}.run();
    } else if (threadIdx.x == 32) {
      hand_out_items(p, exchange);
    } else if (has_plan && threadIdx.x >= cleaning_threads) {
      clean_values(exchange, shared + first_value_offset);
    }
  } else {
    grow_registers<consumer_registers>();
    consume(p, mask, score, exchange, shared_address(shared), warpgroup - 1);
  }
}
