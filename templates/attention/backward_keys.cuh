// backward_keys.cuh -- what the passes of a hopper backward over keys are made of: items, the warps that copy, hand out
// and clean, flags of what is visible, and how scores become weights and dP becomes dS. backward_hopper.cuh has the
// order of it all.
#pragma once

#include "attention/backward_sink.cuh"
#include "attention/item_order.cuh"
#include "attention/pair_flags.cuh"
#include "attention/warpgroup_work.cuh"
#include "generated/backward_products.cuh"
#include "ptx/reduce.cuh"
#include "ptx/tensor_copy.cuh"

namespace flashspan_device {

constexpr int consumer_warpgroups = 2;
constexpr int producer_registers = 40;
constexpr int consumer_registers = 232;
constexpr int hopper_threads = (num_warps + 4) * 32;
constexpr int consumer_threads = consumer_warpgroups * warpgroup_threads;
/// Head dims past 128 leave a warpgroup no registers for both dK and dV of its keys. There the two share 64 keys: one
/// makes weights and dV, the other, which is given the weights, dS and dK (backward_roles.cuh).
constexpr bool split_roles = padded_qk > 128 || padded_v > 128;
static_assert(num_warps == 4 * consumer_warpgroups && block_n == (split_roles ? 64 : 64 * consumer_warpgroups));
/// A tile of queries is worked on in steps of query_step: as many as leave their scores registers.
constexpr int steps_per_tile = block_m / query_step;
static_assert(query_step == 64 || query_step == 128);

constexpr int query_panels = (head_dim_qk + panel_columns - 1) / panel_columns;
constexpr int value_panels = (head_dim_v + panel_columns - 1) / panel_columns;
constexpr int query_panel_bytes = query_step * panel_row_bytes;
constexpr int key_panel_bytes = block_n * panel_row_bytes;
constexpr int query_bytes = query_panels * query_panel_bytes;
constexpr int out_gradient_bytes = value_panels * query_panel_bytes;
constexpr int key_bytes = query_panels * key_panel_bytes;
constexpr int value_bytes = value_panels * key_panel_bytes;
/// dS of one step, a row for each key: panels of 64 queries. Where dQ has a pass of its own, dS^T goes to dK from
/// registers.
constexpr int score_gradient_panels = query_step / panel_columns;
constexpr int score_gradient_bytes = score_gradient_panels * key_panel_bytes;
constexpr int score_gradient_buffers = 2;  // dS of a step is read while that of the next is written

/// Weights of a step as one warpgroup hands them to the other: fp32, in the order of its accumulators, so that threads
/// of equal place in their warpgroups exchange them.
constexpr int weight_buffers = two_passes ? 2 : 1;
constexpr int weight_bytes = 64 * query_step * 4;

/// Two warpgroups share the product for dQ of a tile. Of 128 queries, each takes 64. Of 64 queries, each takes every
/// second panel of columns; where there is one panel and it has 128 keys, 64 keys, and both add to the same sums.
constexpr bool split_by_query = query_step == 128;
constexpr bool split_by_key = !split_by_query && !split_roles && query_panels == 1;
constexpr bool split_by_column = !split_by_query && !split_by_key;
static_assert(two_passes || steps_per_tile == 1);
static_assert(two_passes || query_gradient_columns == (split_by_column ? panel_columns : padded_qk));
static_assert(two_passes || split_roles || query_panels <= (split_by_column ? 2 : 1));
constexpr int query_gradient_shares = split_by_column ? query_panels : split_by_query ? consumer_warpgroups : 1;
constexpr int query_gradient_floats = query_gradient_columns / 2;  // a thread's part of a share of dQ of one tile

struct BackwardItem {
  int key_tile;
  int kv_head;
  int b;
  int steps;  // of all query heads together
};

/// One step, as the consumers need to know it.
struct Step {
  int number;  // of its queries, counted in steps
  int mask;    // as TileEntry::mask
  int h;
};

/// Shared memory that is no tile.
struct Exchange {
  float lse[num_stages][query_step];  // in units of exponents of 2, +inf for rows without weights
  float delta[num_stages][query_step];
  TransferBarrier keys_full, keys_empty;
  TransferBarrier query_full[num_stages], query_empty[num_stages];
  TransferBarrier out_gradient_full[num_stages], out_gradient_empty[num_stages];
  Step steps[num_stages];
  TransferBarrier score_gradients_full[score_gradient_buffers], score_gradients_empty[score_gradient_buffers];
  TransferBarrier item_full[item_slots], item_empty[item_slots];
  BackwardItem items[item_slots];
  // Of the item that is worked on; see Cleaner.
  RowFlags<block_n> cleaned_keys;
  bool keys_doubtful[score_gradient_buffers];  // of a step, by its buffer of dS
  u32 cleaned_out_gradients;
  TransferBarrier cleaning_asked[consumer_warpgroups];
  int to_be_cleaned[consumer_warpgroups];
  int asking;       // of the two
  u32 doubtful[2];  // a warpgroup's; where roles are split, of this meeting and the next
  // Where roles are split.
  TransferBarrier met;
  bool cleaned;
  TransferBarrier weights_full[weight_buffers], weights_empty[weight_buffers];
};

constexpr int value_offset = key_bytes;
constexpr int query_offset = value_offset + value_bytes;
constexpr int out_gradient_offset = query_offset + num_stages * query_bytes;
constexpr int score_gradient_offset = out_gradient_offset + num_stages * out_gradient_bytes;
constexpr int weight_offset = score_gradient_offset + (two_passes ? 0 : score_gradient_buffers * score_gradient_bytes);
constexpr int exchange_offset = weight_offset + (split_roles ? weight_buffers * weight_bytes : 0);
static_assert(exchange_offset + static_cast<int>(sizeof(Exchange)) <= shared_bytes, "host and device agree");

__device__ __forceinline__ int query_tiles_of(const AttentionParameters& p) {
  return (p.q_len + block_m - 1) / block_m;
}
__device__ __forceinline__ int key_tiles_of(const AttentionParameters& p) { return (p.kv_len + block_n - 1) / block_n; }

/// First of a row's place in the row statistics, which are padded to whole tiles.
__device__ __forceinline__ long long statistics_of(const AttentionParameters& p, int b, int h, int step) {
  return ((static_cast<long long>(b) * p.query_heads + h) * query_tiles_of(p) * steps_per_tile + step) * query_step;
}

/// Sums of dQ of one tile: share after share, each in the order of a warpgroup's accumulators, so that a thread adds
/// four neighbours at a time.
constexpr int query_gradient_share_floats = warpgroup_threads * query_gradient_floats;
constexpr int query_gradient_tile_floats = query_gradient_shares * query_gradient_share_floats;
__device__ __forceinline__ float* query_gradient_sums(const AttentionParameters& p, int b, int h, int query_tile) {
  return p.query_gradient_sums + ((static_cast<long long>(b) * p.query_heads + h) * query_tiles_of(p) + query_tile) *
                                     query_gradient_tile_floats;
}

/// Tiles of queries that one query head shows a tile of keys.
__device__ __forceinline__ TileList query_list(const AttentionParameters& p, int b, int h, int key_tile) {
  return tile_list(p.by_key, b, h, key_tile, key_tiles_of(p), query_tiles_of(p));
}

/// The one thread that starts all copies.
struct Producer {
  const AttentionParameters& p;
  const TensorMaps& maps;
  Exchange& exchange;
  u32 shared;
  Ring<num_stages> stage = {0, 1};
  u32 keys_parity = 1;

  __device__ __forceinline__ void copy_keys(const BackwardItem& item) {
    exchange.keys_empty.wait(keys_parity);
    keys_parity ^= 1;
    exchange.keys_full.arrive_and_expect(key_bytes + value_bytes);
#pragma unroll
    for (int panel = 0; panel < query_panels; ++panel) {
      copy_panel<block_n, key_step>(shared + panel * key_panel_bytes, &maps.key, exchange.keys_full,
                                    panel * panel_columns, item.key_tile * block_n, item.kv_head, item.b);
    }
#pragma unroll
    for (int panel = 0; panel < value_panels; ++panel) {
      copy_panel<block_n, key_step>(shared + value_offset + panel * key_panel_bytes, &maps.value, exchange.keys_full,
                                    panel * panel_columns, item.key_tile * block_n, item.kv_head, item.b);
    }
  }

  __device__ __forceinline__ void copy_queries(const Step& step, int b) {
    const int h = step.h;
    const int first_q = step.number * query_step;
    const long long statistics = statistics_of(p, b, h, step.number);
    TransferBarrier& query_full = exchange.query_full[stage.index];
    exchange.query_empty[stage.index].wait(stage.parity);
    exchange.steps[stage.index] = step;
    query_full.arrive_and_expect(query_bytes + query_step * 4);
#pragma unroll 1
    for (int panel = 0; panel < query_panels; ++panel) {
      copy_box(shared + query_offset + stage.index * query_bytes + panel * query_panel_bytes, &maps.query, query_full,
               panel * panel_columns, first_q, h, b);
    }
    copy_bytes(shared_address(exchange.lse[stage.index]), p.shifted_lse + statistics, query_step * 4, query_full);
    TransferBarrier& out_gradient_full = exchange.out_gradient_full[stage.index];
    exchange.out_gradient_empty[stage.index].wait(stage.parity);
    out_gradient_full.arrive_and_expect(out_gradient_bytes + query_step * 4);
#pragma unroll 1
    for (int panel = 0; panel < value_panels; ++panel) {
      copy_box(shared + out_gradient_offset + stage.index * out_gradient_bytes + panel * query_panel_bytes,
               &maps.out_gradient, out_gradient_full, panel * panel_columns, first_q, h, b);
    }
    copy_bytes(shared_address(exchange.delta[stage.index]), p.delta + statistics, query_step * 4, out_gradient_full);
    stage.advance();
  }

  __device__ __forceinline__ void run() {
    Ring<item_slots> slot;
    const int group = p.query_heads / p.kv_heads;
    while (true) {
      exchange.item_full[slot.index].wait(slot.parity);
      const BackwardItem& item = exchange.items[slot.index];
      if (item.steps == no_more_items) return;
      copy_keys(item);
#pragma unroll 1
      for (int h = item.kv_head * group; h < (item.kv_head + 1) * group; ++h) {
        const TileList list = query_list(p, item.b, h, item.key_tile);
#pragma unroll 1
        for (int i = 0; i < list.count * steps_per_tile; ++i) {
          const TileEntry entry = list.entry(i / steps_per_tile);
          copy_queries({entry.tile * steps_per_tile + i % steps_per_tile, entry.mask, h}, item.b);
        }
      }
      exchange.item_empty[slot.index].arrive();
      slot.advance();
    }
  }
};

/// Finds out what item `number` is.
__device__ __forceinline__ void look_up(BackwardItem& item, const AttentionParameters& p, int number) {
  const int key_tiles = key_tiles_of(p);
  const int group = p.query_heads / p.kv_heads;
  const int section = p.section_heads / group > 0 ? p.section_heads / group : 1;
  const ItemPlace place = place_of_item(number, p.batch * p.kv_heads, section, key_tiles,
                                        outlying_ranks(p.by_key, key_tiles, query_tiles_of(p)));
  item.b = place.head / p.kv_heads;
  item.kv_head = place.head - item.b * p.kv_heads;
  item.key_tile = place.rank;
  const int first_h = item.kv_head * group;
  if constexpr (has_plan) {
    const int plan_b = p.by_key.plan_batch == 1 ? 0 : item.b;
    const int plan_h = p.by_key.plan_heads == 1 ? 0 : first_h;
    item.key_tile =
        p.by_key.order[(static_cast<long long>(plan_b) * p.by_key.plan_heads + plan_h) * key_tiles + place.rank];
  }
  item.steps = 0;
  for (int h = first_h; h < first_h + group; ++h) {
    item.steps += query_list(p, item.b, h, item.key_tile).count * steps_per_tile;
  }
}

/// The one thread that finds work, one item ahead of the others. With a plan, `items` takings leave the counter at 0
/// for the next call of that plan.
__device__ __forceinline__ void hand_out_items(const AttentionParameters& p, Exchange& exchange) {
  const int items = key_tiles_of(p) * p.kv_heads * p.batch;
  Ring<item_slots> slot = {0, 1};
  int number = static_cast<int>(blockIdx.x);
  while (true) {
    exchange.item_empty[slot.index].wait(slot.parity);
    BackwardItem& item = exchange.items[slot.index];
    const bool found = number < items;
    if (found) {
      look_up(item, p, number);
    } else {
      item.steps = no_more_items;
    }
    exchange.item_full[slot.index].arrive();
    if (!found) return;
    number = static_cast<int>(gridDim.x) +
             (has_plan ? static_cast<int>(atomicInc(p.next_item, static_cast<unsigned int>(items) - 1)) : number);
    slot.advance();
  }
}

/// Flags of a lane's two keys, for the queries whose scores it holds: element e is query 8 (e / 2) + e % 2 past the
/// lane's first.
constexpr int elements_per_row = query_step / 4;

/// One consumer warpgroup's view of an item.
struct Consumer {
  const AttentionParameters& p;
  const ProgramArguments& mask;
  const ProgramArguments& score;
  int b;
  int tile_first_k;

  // Computed anew where they are needed: registers are dear.
  __device__ __forceinline__ static int thread() { return computed_here(static_cast<int>(threadIdx.x)); }
  /// In the tile of keys: the first of the 16 of this warp.
  __device__ __forceinline__ static int first_row() {
    return (split_roles ? thread() % warpgroup_threads : thread() - warpgroup_threads) / 32 * 16;
  }
  /// In the tile of keys: this lane's first; its second is eight below.
  __device__ __forceinline__ static int row() { return first_row() + thread() % 32 / 4; }
  /// In the tile of queries: this lane's first.
  __device__ __forceinline__ static int column() { return thread() % 4 * 2; }
  /// In the tensor: this lane's first key.
  __device__ __forceinline__ int first_k() const { return tile_first_k + row(); }

  __device__ __forceinline__ bool masked(const Step& step) const {
    if constexpr (has_score) {
      if (hides_rows(step)) return true;
    }
    return step.mask != full_tile || tile_first_k + block_n > p.kv_len;
  }

  /// Rows past q_len are zeros, and weigh nothing. What a score program makes of them, whose lookups give 0 there, may
  /// be anything, log(0) say, which would make a NaN of the zeros that they add: they are hidden.
  __device__ __forceinline__ bool hides_rows(const Step& step) const {
    return (step.number + 1) * query_step > p.q_len;
  }

  /// Flags of one tile. Called before its scores are asked for, when their registers are free: bits arrive beside the
  /// products, as nothing is computed from them here.
  __device__ __forceinline__ void flags(u32 (&words)[2], const Step& step) const {
    if constexpr (has_plan) {
      if (step.mask == evaluated_tile) evaluate(words, step);
    }
    const int rest = p.kv_len - first_k();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (rest <= 8 * half) {
        words[half] = 0;
      } else if (has_plan && step.mask >= 0) {
        const long long first = (static_cast<long long>(step.mask) * block_n + row()) * 4 + column() / 2;
        words[half] = p.by_key.bits[first + 32LL * half];
        if constexpr (steps_per_tile > 1) words[half] >>= step.number % steps_per_tile * elements_per_row;
      } else if (step.mask == full_tile) {
        words[half] = 0xffffffffu;
      }
      if constexpr (has_score) {
        if (hides_rows(step)) words[half] &= columns_below(p.q_len - step.number * query_step - column(), 0);
      }
    }
  }

  __device__ __forceinline__ void evaluate(u32 (&words)[2], const Step& step) const {
    const int first_q = step.number * query_step + column();
    const int first_k = this->first_k();
    const int h = computed_here(step.h);
    if constexpr (lowering == Lowering::column_bounds) {
      words[0] = words[1] = 0;
      constexpr int count = MaskProgram::column_ranges > 0 ? MaskProgram::column_ranges : 1;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int begin[count];
        int end[count];
        MaskProgram::ranges_of_column(mask, b, h, first_k + 8 * half, p.q_len, p.kv_len, begin, end);
#pragma unroll
        for (int range = 0; range < count; ++range) {
          words[half] |= columns_below(end[range] - first_q, 0) & ~columns_below(begin[range] - first_q, 0);
        }
      }
    } else {
      evaluate_pairs<false, elements_per_row>(words, mask, b, h, first_k, first_q, p.q_len, p.kv_len);
    }
  }
};

/// Elements n and n + 1 of a lane's row `half` in block `block` of eight columns.
__device__ __forceinline__ constexpr int element_of(int block, int half) { return 4 * block + 2 * half; }

/// Scores become weights. `lse` points at the lane's first column.
__device__ __forceinline__ void weigh(float (&scores)[query_step / 2], const float* lse, float exponent) {
#pragma unroll
  for (int column = 0; column < query_step; column += 8) {
    const TwoFloats shift = *reinterpret_cast<const TwoFloats*>(lse + column);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = element_of(column / 8, half);
      scores[i] = exp2_fast(scores[i] * exponent - shift.of[0]);
      scores[i + 1] = exp2_fast(scores[i + 1] * exponent - shift.of[1]);
    }
  }
}

__device__ __forceinline__ void hide(float (&values)[query_step / 2], const u32 (&words)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int e = 0; e < elements_per_row; ++e) {
      // flags() has set them. NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult)
      if ((words[half] >> e & 1u) == 0) values[element_of(e / 2, half) + e % 2] = 0.f;
    }
  }
}

/// dP becomes dS.
__device__ __forceinline__ void differentiate(float (&gradients)[query_step / 2],
                                              const float (&weights)[query_step / 2], const float* delta) {
#pragma unroll
  for (int column = 0; column < query_step; column += 8) {
    const TwoFloats of_row = *reinterpret_cast<const TwoFloats*>(delta + column);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = element_of(column / 8, half);
      gradients[i] = weights[i] * (gradients[i] - of_row.of[0]);
      gradients[i + 1] = weights[i + 1] * (gradients[i + 1] - of_row.of[1]);
    }
  }
}

/// Both at once, where a score program stands between product and weight.
__device__ __forceinline__ void weigh_and_differentiate(const Consumer& c, const Step& step,
                                                        float (&scores)[query_step / 2],
                                                        float (&gradients)[query_step / 2], const float* lse,
                                                        const float* delta) {
  const int first_q = step.number * query_step + Consumer::column();
  const int first_k = c.first_k();
#pragma unroll
  for (int i = 0; i < query_step / 2; ++i) {
    const int column = i / 4 * 8 + i % 2;
    const int q = first_q + column;
    const int k = first_k + i / 2 % 2 * 8;
    const float natural = scores[i] * c.p.scale;
    const float modified = MaskProgram::score(c.score, c.b, step.h, q, k, c.p.q_len, c.p.kv_len, natural);
    const float slope = MaskProgram::score_gradient(c.score, c.b, step.h, q, k, c.p.q_len, c.p.kv_len, natural);
    scores[i] = exp2_fast((modified - lse[column]) * log2_e);
    gradients[i] = scores[i] * (gradients[i] - delta[column]) * slope;
  }
}

__device__ __forceinline__ void pack_fragments(u32 (&fragments)[query_step / 4],
                                               const float (&values)[query_step / 2]) {
#pragma unroll
  for (int i = 0; i < query_step / 2; i += 2) fragments[i / 2] = pack_pair<is_bf16>(values[i], values[i + 1]);
}

/// Puts a warp's 16 rows of dS^T where the product with the keys reads them: rows of 128 bytes, in the swizzle that
/// wgmma expects.
__device__ __forceinline__ void store_fragments(u32 shared, const u32 (&fragments)[query_step / 4]) {
  const int lane = Consumer::thread() % 32;
  const int at_row = Consumer::first_row() + lane % 16;
  const u32 row_address = shared + static_cast<u32>(at_row * panel_row_bytes);
#pragma unroll
  for (int i = 0; i < query_step / 4; i += 4) {
    const int chunk = i / 2 % 8 + lane / 16;
    const u32 address = row_address + i / 16 * key_panel_bytes + ((chunk ^ at_row % 8) << 4);
    store_matrices(address, fragments[i], fragments[i + 1], fragments[i + 2], fragments[i + 3]);
  }
}

/// Whether one of a lane's values is NaN or infinite. In two chains: one is as long as the exponentials are, and
/// registers are dear.
__device__ __forceinline__ bool holds_non_finite(const float (&values)[query_step / 2]) {
  constexpr int chains = query_step == 64 ? 2 : 1;
  float sums[2] = {0.f, 0.f};  // stay 0 as long as all are finite
#pragma unroll
  for (int i = 0; i < query_step / 2; ++i) sums[i % chains] = values[i] * 0.f + sums[i % chains];
  return !(sums[0] + sums[1] == 0.f);
}

/// Sets a flag in shared memory if one of a lane's values is NaN or infinite: there are no registers to remember it.
__device__ __forceinline__ void note_doubt(u32& flag, const float (&values)[query_step / 2]) {
  if (holds_non_finite(values)) atomicOr(&flag, 1u);
}

/// The same of dS, of which hidden elements are 0 already unless what they are made of is not finite: rare.
__device__ __forceinline__ void hide_and_note_doubt(u32& flag, float (&gradients)[query_step / 2],
                                                    const u32 (&words)[2]) {
  if (!holds_non_finite(gradients)) return;
  hide(gradients, words);
  atomicOr(&flag, 1u);
}

// Named barriers.
constexpr int consumer_barrier = 1;
constexpr int warpgroup_barrier = 2;  // and the next: one for each warpgroup
constexpr int cleaned_barrier = 4;    // likewise
constexpr int cleaner_barrier = 6;
constexpr int cleaning_threads = 64;
// In place of a stage.
constexpr int nothing_more_to_clean = -1;
constexpr int keys_to_clean = -2;

/// found(chunk) is told of every 16 bytes of a tile in shared memory that hold NaN or infinity, which become 0 if
/// `changes`. By the cleaning threads. Rare, so written for size.
template <bool changes, int bytes, typename Found>
__device__ __forceinline__ void find_non_finite(unsigned char* tile, const Found& found) {
  EightElements* const chunks = reinterpret_cast<EightElements*>(tile);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % cleaning_threads; i < bytes / 16; i += cleaning_threads) {
    EightElements elements = chunks[i];
    if (!take_non_finite_out<is_bf16>(elements)) continue;
    if (changes) chunks[i] = elements;
    found(i);
  }
}

/// Keeps NaN and infinity of hidden elements out of the products, where they would meet weights of 0 (0 * NaN is NaN).
/// Rows that hold some show it in their raw scores, or in dP. In a tile that hides pairs and shows such rows, query, dO
/// and key are cleaned in shared memory, behind the products that make scores. What visible elements would have done:
/// - of query: scores are NaN, or the row's LSE and delta are, and with them its dS;
/// - of dO: delta is NaN; to dV they are added from global memory when the item is done (add_what_was_cleaned);
/// - of key, an operand of dQ alone: cleaned for the item's later tiles too, so the key's pairs are set by rule from
///   then on (poison). dQ of the step before still has to be made of them as they are, so they are cleaned after it.
/// Two warps that have nothing else to do clean what a warpgroup asks for. Query and dO of a stage are cleaned when
/// both warpgroups ask, as both use them: each decides by itself, but where one of them is not finite both will ask,
/// for it makes every key's score or dP so. Keys show in their own warpgroup's scores alone.
struct Cleaner {
  Exchange& exchange;
  unsigned char* shared;

  __device__ __forceinline__ static void wait_for_all() { named_barrier_wait(cleaner_barrier, cleaning_threads); }
  __device__ __forceinline__ static bool is_first() { return threadIdx.x % cleaning_threads == 0; }

  /// found(chunk) of query and dO.
  template <bool changes, typename Found, typename FoundGradient>
  __device__ __forceinline__ void find_in_stage(long long stage, const Found& found,
                                                const FoundGradient& found_gradient) const {
    find_non_finite<changes, query_bytes>(shared + query_offset + stage * query_bytes, found);
    find_non_finite<changes, out_gradient_bytes>(shared + out_gradient_offset + stage * out_gradient_bytes,
                                                 found_gradient);
  }

  /// The warpgroup that asks next. `served`: a bit for each, the parity of the number of its requests so far.
  __device__ __forceinline__ int await_request(u32 served) const {
    if (is_first()) {
      int warpgroup = 0;
      while (!exchange.cleaning_asked[warpgroup].has_ended(served >> warpgroup & 1)) {
        warpgroup ^= 1;
        __nanosleep(200);
      }
      exchange.asking = warpgroup;
    }
    wait_for_all();
    const int warpgroup = exchange.asking;
    wait_for_all();
    exchange.cleaning_asked[warpgroup].wait(served >> warpgroup & 1);  // sees what was written before
    return warpgroup;
  }

  __device__ __forceinline__ bool needs_both(int what) const {
    if (split_roles || what == keys_to_clean) return true;
    bool found = false;
    const auto note = [&](int) { found = true; };
    find_in_stage<false>(what, note, note);
    return named_barrier_any(cleaner_barrier, cleaning_threads, found);
  }

  __device__ __forceinline__ void clean(int what, bool both) const {
    if (what == keys_to_clean) {
      find_non_finite<true, key_bytes>(shared, [](int) {});
      return;
    }
    if (both) find_in_stage<true>(what, [](int) {}, [&](int) { atomicOr(&exchange.cleaned_out_gradients, 1); });
    if constexpr (!two_passes) {
      find_non_finite<false, key_bytes>(
          shared, [&](int chunk) { exchange.cleaned_keys.set(chunk * 16 / panel_row_bytes % block_n); });
    }
    if (split_roles && is_first()) {
      exchange.cleaned = true;
      exchange.doubtful[0] = exchange.doubtful[1] = 0;
    }
  }

  __device__ __forceinline__ void run() const {
    u32 served = 0;
    int waits_for[consumer_warpgroups] = {nothing_more_to_clean, nothing_more_to_clean};
    int done = 0;
    while (done < consumer_warpgroups) {
      const int warpgroup = await_request(served);
      const int other = 1 - warpgroup;
      const int what = exchange.to_be_cleaned[warpgroup];
      served ^= 1u << warpgroup;
      if (what == nothing_more_to_clean) {
        ++done;
        continue;
      }
      // A warpgroup may ask for a stage while the other waits for its keys: it will ask for those next.
      const bool both = needs_both(what);
      if (both && (warpgroup == 0 ? waits_for[1] : waits_for[0]) != what) {
        (warpgroup == 0 ? waits_for[0] : waits_for[1]) = what;
        continue;
      }
      clean(what, both);
      products_see_stores();
      named_barrier_arrive(cleaned_barrier + warpgroup, cleaning_threads + warpgroup_threads);
      if (both) {
        named_barrier_arrive(cleaned_barrier + other, cleaning_threads + warpgroup_threads);
        waits_for[0] = waits_for[1] = nothing_more_to_clean;
      }
    }
  }
};

/// By all threads of a warpgroup, which does not wait.
__device__ __forceinline__ void ask_for_cleaning(Exchange& exchange, int warpgroup, int what) {
  if (Consumer::thread() % warpgroup_threads == 0) exchange.to_be_cleaned[warpgroup] = what;
  exchange.cleaning_asked[warpgroup].arrive();
}

/// By all threads of a warpgroup: returns when it is done. Barriers by constant number: with one from a register ptxas
/// finds no registers for a score.
__device__ __forceinline__ void have_cleaned(Exchange& exchange, int warpgroup, int what) {
  ask_for_cleaning(exchange, warpgroup, what);
  if (warpgroup == 0) {
    named_barrier_wait(cleaned_barrier, cleaning_threads + warpgroup_threads);
  } else {
    named_barrier_wait(cleaned_barrier + 1, cleaning_threads + warpgroup_threads);
  }
}

/// Weights or dS of visible pairs of cleaned keys. A score of such a key is NaN or infinite. If the row's LSE is
/// finite, all its scores were -inf, so that the weight is 0; else it is NaN, as dS always is. Rows without weights
/// keep theirs. On packed fragments, when the registers of scores are free.
template <bool of_weights>
__device__ __forceinline__ void poison(const Exchange& exchange, int stage, const u32 (&words)[2],
                                       u32 (&fragments)[query_step / 4]) {
  constexpr u32 not_a_number_bits = 0x7fff;  // in either format
  const int row = Consumer::row();
  const float* const first_lse = exchange.lse[computed_here(stage)] + Consumer::column();
  const u32 cleaned[2] = {exchange.cleaned_keys.test(row) ? words[0] : 0,
                          exchange.cleaned_keys.test(row + 8) ? words[1] : 0};
#pragma unroll
  for (int i = 0; i < query_step / 4; ++i) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float lse = first_lse[i / 2 * 8 + e];
      const float delta = first_lse[num_stages * query_step + i / 2 * 8 + e];
      const bool has_weights = lse != -minus_infinity() || delta != delta;
      // flags() has set them. NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult)
      if (!has_weights || (cleaned[i % 2] >> (i / 2 * 2 + e) & 1u) == 0) continue;
      const int shift = 16 * e;
      const u32 bits = of_weights && lse * 0.f == 0.f ? 0 : not_a_number_bits;
      fragments[i] = (fragments[i] & ~(0xffffu << shift)) | bits << shift;
    }
  }
}

/// Adds to a warp's 16 rows of dV the non-finite elements of dO that they see and that a Cleaner took out: of partial
/// tiles, and in the last tile of keys, whose tail is hidden, of all.
__device__ inline void add_what_was_cleaned(const Consumer& c, const BackwardItem& item) {
  __syncwarp();
  const int first_k = __shfl_sync(0xffffffffu, c.first_k(), 0);
  const int rows = c.p.kv_len - first_k < 16 ? c.p.kv_len - first_k : 16;
  const GlobalRows<unsigned short> results = {
      matrix_of(c.p.value_gradient, c.b, item.kv_head) + first_k * c.p.value_gradient.stride_row,
      c.p.value_gradient.stride_row, rows};
  const int group = c.p.query_heads / c.p.kv_heads;
#pragma unroll 1
  for (int h = item.kv_head * group; h < (item.kv_head + 1) * group; ++h) {
    const TileList list = query_list(c.p, c.b, h, item.key_tile);
#pragma unroll 1
    for (int i = 0; i < list.count; ++i) {
      const TileEntry entry = list.entry(i);
      if (!c.masked({entry.tile, entry.mask, h})) continue;
      const int first_q = entry.tile * block_m;
      const GlobalRows<const unsigned short> out_gradients = {
          matrix_of(c.p.out_gradient, c.b, h) + first_q * c.p.out_gradient.stride_row, c.p.out_gradient.stride_row,
          c.p.q_len - first_q < block_m ? c.p.q_len - first_q : block_m};
      add_visible_non_finite<is_bf16, 32>(results, out_gradients, head_dim_v, [&](int row, int query_row) {
        return MaskProgram::visible(c.mask, computed_here(c.b), computed_here(h), first_q + query_row, first_k + row,
                                    c.p.q_len, c.p.kv_len);
      });
    }
  }
}

/// Where the operands of a step stand: its stage, the parity of that, and places for operand_at().
struct StepPlaces {
  u32 stage;
  u32 parity;
  u32 query;
  u32 out_gradient;
  u32 score_gradients;

  __device__ __forceinline__ u64 query_rows() const { return operand_at(query, 0); }
  __device__ __forceinline__ u64 query_columns() const { return operand_at(query, query_panel_bytes); }
  __device__ __forceinline__ u64 out_gradient_rows() const { return operand_at(out_gradient, 0); }
  __device__ __forceinline__ u64 out_gradient_columns() const { return operand_at(out_gradient, query_panel_bytes); }
  /// Computed by here: see computed_ahead(). Takes registers, which roles that are split have none of.
  __device__ __forceinline__ StepPlaces ahead() const {
    return {computed_ahead(stage), computed_ahead(parity), computed_ahead(query), computed_ahead(out_gradient),
            computed_ahead(score_gradients)};
  }
};

/// Where the operands of a consumer warpgroup stand in shared memory.
struct Operands {
  static constexpr int warpgroup_row_bytes = 64 * panel_row_bytes;

  u32 shared;
  int warpgroup;
  int first_row_bytes;  // of its keys, from the first of the tile
  u64 key_rows;
  u64 value_rows;
  u64 key_columns;           // of its first share of dQ
  int score_gradient_share;  // bytes past the first of dS

  __device__ __forceinline__ Operands(u32 shared, int warpgroup)
      : shared(shared),
        warpgroup(warpgroup),
        first_row_bytes(split_roles ? 0 : warpgroup * warpgroup_row_bytes),
        key_rows(operand_descriptor(shared + first_row_bytes, 0)),
        value_rows(operand_descriptor(shared + value_offset + first_row_bytes, 0)),
        key_columns(operand_descriptor(shared + warpgroup * (split_by_column ? key_panel_bytes
                                                             : split_by_key  ? warpgroup_row_bytes
                                                                             : 0),
                                       key_panel_bytes)),
        score_gradient_share(warpgroup * (split_by_query ? key_panel_bytes
                                          : split_by_key ? warpgroup_row_bytes
                                                         : 0)) {}
  __device__ __forceinline__ u32 score_gradients(u32 step) const {
    return shared + score_gradient_offset + step % score_gradient_buffers * score_gradient_bytes;
  }
  __device__ __forceinline__ StepPlaces places(u32 step) const {
    const u32 stage = step % num_stages;
    return {stage, step / num_stages % 2, operand_place(shared + query_offset + stage * query_bytes),
            operand_place(shared + out_gradient_offset + stage * out_gradient_bytes),
            operand_place(score_gradients(step))};
  }
  /// The warpgroup's own keys of dS^T.
  __device__ __forceinline__ u64 score_gradient_rows(const StepPlaces& step) const {
    return operand_at(step.score_gradients + operand_place(first_row_bytes), 0);
  }
};

/// Parity of the phase in which `step` fills its buffer of dS, and in which it is given back.
__device__ __forceinline__ u32 score_gradient_parity(u32 step) { return step / score_gradient_buffers % 2; }

/// Puts a warpgroup's rows of dS^T of a step where its own dK, and dQ of both warpgroups, read them. `doubtful`: its
/// keys may have to be cleaned before they become operands of dQ.
__device__ __forceinline__ void hand_over(Exchange& exchange, const Operands& at, u32 step,
                                          const u32 (&gradients)[query_step / 4], bool doubtful) {
  const u32 buffer = step % score_gradient_buffers;
  exchange.score_gradients_empty[buffer].wait(score_gradient_parity(step) ^ 1);
  if (doubtful) exchange.keys_doubtful[buffer] = true;
  store_fragments(at.score_gradients(step), gradients);
  products_see_stores();
  exchange.score_gradients_full[buffer].arrive();
  named_barrier_wait(warpgroup_barrier + at.warpgroup, warpgroup_threads);
}

/// Waits until all of dS^T of a step has been handed over.
__device__ __forceinline__ void await_score_gradients(Exchange& exchange, u32 step) {
  exchange.score_gradients_full[step % score_gradient_buffers].wait(score_gradient_parity(step));
}

/// Starts one of a warpgroup's shares of dQ of a step, of which it has every second.
__device__ __forceinline__ void ask_for_query_gradient(const Operands& at, const StepPlaces& step, int share,
                                                       float (&query_gradient)[query_gradient_floats]) {
  products_fence();
  multiply_query_gradient(query_gradient,
                          operand_at(step.score_gradients + operand_place(at.score_gradient_share), key_panel_bytes),
                          at.key_columns + descriptor_offset(share * consumer_warpgroups * key_panel_bytes));
  close_product_group();
}

/// Starts dK of a step, from where its dS^T stands: in registers, or where the warpgroup has handed it over.
__device__ __forceinline__ void ask_for_key_gradient(const Operands& at, const StepPlaces& step, bool accumulate,
                                                     const u32 (&gradients)[query_step / 4],
                                                     float (&key_gradient)[padded_qk / 2]) {
  pin(key_gradient);
  products_fence();
  if constexpr (two_passes) {
    accumulate_key_gradient(key_gradient, gradients, step.query_columns(), accumulate);
  } else {
    accumulate_key_gradient(key_gradient, at.score_gradient_rows(step), step.query_columns(), accumulate);
  }
  close_product_group();
}

/// After a warpgroup's share of dQ of a step is made.
__device__ __forceinline__ void give_back_score_gradients(Exchange& exchange, u32 step) {
  exchange.score_gradients_empty[step % score_gradient_buffers].arrive();
}

/// Where a warpgroup sums its first share of dQ of a step.
__device__ __forceinline__ float* first_query_gradient_sums(const AttentionParameters& p, int b, const Step& step,
                                                            int warpgroup) {
  return query_gradient_sums(p, b, step.h, step.number) + (split_by_key ? 0 : warpgroup * query_gradient_share_floats);
}

/// Adds a warpgroup's share of dQ of one tile to its sums.
__device__ __forceinline__ void add_query_gradient(float* sums, const float (&query_gradient)[query_gradient_floats]) {
  constexpr int four_of_all = 4 * warpgroup_threads;
  const int first = Consumer::thread() % warpgroup_threads * 4;
  float* const mine = sums + first;
#pragma unroll
  for (int i = 0; i < query_gradient_share_floats; i += four_of_all) {
    const float* const four = query_gradient + i / warpgroup_threads;
    add_four(mine + i, four[0], four[1], four[2], four[3]);
  }
}

/// By a whole warp, of which one lane reads.
__device__ __forceinline__ Step read_step(const Exchange& exchange, u32 stage, bool first_lane, Step step) {
  if (first_lane) step = exchange.steps[stage];
  return {__shfl_sync(0xffffffffu, step.number, 0), __shfl_sync(0xffffffffu, step.mask, 0),
          __shfl_sync(0xffffffffu, step.h, 0)};
}

/// Waits until the query of a step is there. By a whole warp.
__device__ __forceinline__ Step await_step(Exchange& exchange, u32 step, bool first_lane) {
  const u32 stage = step % num_stages;
  exchange.query_full[stage].wait(step / num_stages % 2);
  return read_step(exchange, stage, first_lane, {});
}

/// Scores of a step become weights and dP becomes dS, when the products that make dP are done. `lse` and `delta` point
/// at the lane's first column. Of a masked step `doubtful` is set if something of the lane's is not finite.
__device__ __forceinline__ void make_gradients(u32& doubtful, const Consumer& c, const Step& step, bool masked,
                                               const float* lse, const float* delta, float exponent,
                                               const u32 (&words)[2], float (&scores)[query_step / 2],
                                               float (&gradients)[query_step / 2]) {
  if (has_plan && masked) note_doubt(doubtful, scores);
  if constexpr (has_score) {
    wait_for_products<0>();
    pin(gradients);
    if (has_plan && masked) note_doubt(doubtful, gradients);
    weigh_and_differentiate(c, step, scores, gradients, lse, delta);
    if (masked) {
      hide(scores, words);
      hide(gradients, words);
    }
  } else {
    weigh(scores, lse, exponent);
    if (masked) hide(scores, words);
    wait_for_products<0>();
    pin(gradients);
    differentiate(gradients, scores, delta);
    if (masked) hide_and_note_doubt(doubtful, gradients, words);
  }
}

/// `cleaned`: whether tiles of the item have been cleaned.
template <bool of_weights>
__device__ __forceinline__ void poison_if_cleaned(const Exchange& exchange, u32 stage, bool cleaned, bool masked,
                                                  u32 (&words)[2], u32 (&fragments)[query_step / 4]) {
  if (!has_plan || !cleaned) return;
  if (!masked) words[0] = words[1] = 0xffffffffu;
  poison<of_weights>(exchange, static_cast<int>(stage), words, fragments);
}

/// By a warpgroup: whether `value` is true in one of its threads. By constant number, as in have_cleaned().
__device__ __forceinline__ bool any_of_warpgroup(int warpgroup, bool value) {
  if (warpgroup == 0) return named_barrier_any(warpgroup_barrier, warpgroup_threads, value);
  return named_barrier_any(warpgroup_barrier + 1, warpgroup_threads, value);
}

/// By a warpgroup, behind the products of a masked step: has what is not finite cleaned if one of its threads doubts.
/// True if tiles of the item are to be taken as cleaned.
__device__ __forceinline__ bool clean_if_doubtful(Exchange& exchange, int warpgroup, u32 step) {
  // A thread sees what it has noted itself, and what others have, maybe: they answer for themselves.
  if (!any_of_warpgroup(warpgroup, exchange.doubtful[warpgroup] != 0)) return false;
  exchange.doubtful[warpgroup] = 0;
  have_cleaned(exchange, warpgroup, static_cast<int>(step % num_stages));
  return true;
}

/// Before a warpgroup's share of dQ of `step`, a masked one, and behind that of the step before: has keys cleaned if
/// the step's dS came with a doubt. Both warpgroups have waited for it, and find the same. True if it was so.
__device__ __forceinline__ bool clean_keys_if_doubtful(Exchange& exchange, int warpgroup, u32 step) {
  bool& doubtful = exchange.keys_doubtful[step % score_gradient_buffers];
  if (!doubtful) return false;
  have_cleaned(exchange, warpgroup, keys_to_clean);
  doubtful = false;  // both have read it
  return true;
}

/// Keeps hidden NaN and infinity of a step's tile out of its products. `cleaned`: whether tiles of the item have been.
__device__ __forceinline__ void keep_hidden_out(Exchange& exchange, int warpgroup, u32 step, u32 stage, bool masked,
                                                bool& cleaned, u32 (&words)[2], u32 (&weights)[query_step / 4],
                                                u32 (&gradients)[query_step / 4]) {
  if (has_plan && masked && clean_if_doubtful(exchange, warpgroup, step)) cleaned = true;
  if (two_passes) return;
  poison_if_cleaned<true>(exchange, stage, cleaned, masked, words, weights);
  poison_if_cleaned<false>(exchange, stage, cleaned, masked, words, gradients);
}

/// Starts a warpgroup's share of dQ of a step, when all of its dS is there and its keys are clean.
__device__ __forceinline__ void await_and_ask_for_query_gradient(Exchange& exchange, const Operands& at, u32 step,
                                                                 const StepPlaces& places, bool masked, bool& cleaned,
                                                                 float (&query_gradient)[query_gradient_floats]) {
  await_score_gradients(exchange, step);
  if (has_plan && masked && clean_keys_if_doubtful(exchange, at.warpgroup, step)) cleaned = true;
  ask_for_query_gradient(at, places, 0, query_gradient);
}

template <int count>
__device__ __forceinline__ void start_at_zero(float (&sums)[count]) {
#pragma unroll
  for (float& sum : sums) sum = 0.f;
}

/// Writes a warp's 16 rows of dK or dV of an item.
template <int columns>
__device__ __forceinline__ void store_gradient(const Consumer& c, const BackwardItem& item,
                                               const TensorArgument& tensor, const float (&gradient)[columns / 2],
                                               float factor, int head_dim) {
  unsigned short* const matrix = matrix_of(tensor, item.b, item.kv_head);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const long long k = c.first_k() + 8 * half;
    store_row<columns>(matrix + k * tensor.stride_row, gradient, half, factor, k < c.p.kv_len, head_dim);
  }
}

/// At the end of an item of which tiles were cleaned.
__device__ __forceinline__ void forget_cleaning(Exchange& exchange) {
  named_barrier_wait(consumer_barrier, consumer_threads);
  exchange.cleaned_keys.words[threadIdx.x % (block_n / 32)] = 0;
  exchange.cleaned_out_gradients = 0;
  named_barrier_wait(consumer_barrier, consumer_threads);
}

}  // namespace flashspan_device
