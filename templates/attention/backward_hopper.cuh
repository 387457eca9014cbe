// backward_hopper.cuh -- backward attention for sm_90a, stationary over keys: a persistent block takes a tile of 128
// keys and all queries that see it. Scores and their gradients are computed transposed (S^T = K Q^T, dP^T = V dO^T), so
// that P^T is the operand of dV as it comes; dS^T goes through shared memory to dK and dQ, whose contributions are
// summed in fp32 in global memory. The roles of the warpgroups follow FlashAttention-3 (arXiv 2407.08608); dQ and dK of
// one step are computed beside the scores of the next. docs/hopper-backward.md has the whole account.
//
// Three kernels: attention_backward_delta prepares what each query row needs, attention_backward_tiles does the work,
// attention_backward_query_gradient rounds the sums of dQ.
#pragma once

#include "attention/backward_sink.cuh"
#include "attention/warpgroup_work.cuh"
#include "generated/backward_products.cuh"
#include "ptx/reduce.cuh"
#include "ptx/tensor_copy.cuh"

namespace flashspan_device {

constexpr int consumer_warpgroups = 2;
constexpr int producer_registers = 40;
constexpr int consumer_registers = 232;
constexpr int hopper_threads = (num_warps + 4) * 32;
static_assert(num_warps == 4 * consumer_warpgroups && block_n == 64 * consumer_warpgroups);
static_assert(block_m == 64 || block_m == 128);

constexpr int query_panels = (head_dim_qk + panel_columns - 1) / panel_columns;
constexpr int value_panels = (head_dim_v + panel_columns - 1) / panel_columns;
constexpr int query_panel_bytes = block_m * panel_row_bytes;
constexpr int key_panel_bytes = block_n * panel_row_bytes;
constexpr int query_bytes = query_panels * query_panel_bytes;
constexpr int out_gradient_bytes = value_panels * query_panel_bytes;
constexpr int key_bytes = query_panels * key_panel_bytes;
constexpr int value_bytes = value_panels * key_panel_bytes;
/// dS of one tile, a row for each key: panels of 64 queries.
constexpr int score_gradient_panels = block_m / panel_columns;
constexpr int score_gradient_bytes = score_gradient_panels * key_panel_bytes;
constexpr int score_gradient_buffers = 2;  // dS of a tile is read while that of the next is written

/// Two warpgroups share the product for dQ of a tile. Of 128 queries, each takes 64. Of 64 queries, each takes 64
/// columns; where there are no more columns, 64 keys, and both add to the same sums.
constexpr bool split_by_query = block_m == 128;
constexpr bool split_by_key = !split_by_query && query_panels == 1;
constexpr bool split_by_column = !split_by_query && !split_by_key;
static_assert(query_gradient_columns == (split_by_column ? panel_columns : padded_qk));
static_assert(query_panels <= (split_by_column ? 2 : 1));
constexpr int query_gradient_shares = split_by_key ? 1 : consumer_warpgroups;
constexpr int query_gradient_floats = query_gradient_columns / 2;  // a thread's share of dQ of one tile

struct BackwardItem {
  int key_tile;
  int kv_head;
  int b;
  int steps;  // tiles of all query heads together
};
constexpr int no_more_items = -1;
constexpr int item_slots = 2;

/// One tile of queries, as the consumers need to know it.
struct Step {
  int query_tile;
  int mask;  // as TileEntry::mask
  int h;
};

struct Exchange {
  float lse[num_stages][block_m];  // in units of exponents of 2, +inf for rows without weights
  float delta[num_stages][block_m];
  TransferBarrier keys_full, keys_empty;
  TransferBarrier query_full[num_stages], query_empty[num_stages];
  TransferBarrier out_gradient_full[num_stages], out_gradient_empty[num_stages];
  Step steps[num_stages];
  TransferBarrier item_full[item_slots], item_empty[item_slots];
  BackwardItem items[item_slots];
  // Of the item that is worked on; see Cleaner.
  RowFlags<block_n> cleaned_keys;
  bool doubtful;
  bool cleaned;
  bool cleaned_out_gradients;
  int stage_to_clean;
};

constexpr int value_offset = key_bytes;
constexpr int query_offset = value_offset + value_bytes;
constexpr int out_gradient_offset = query_offset + num_stages * query_bytes;
constexpr int score_gradient_offset = out_gradient_offset + num_stages * out_gradient_bytes;
constexpr int exchange_offset = score_gradient_offset + score_gradient_buffers * score_gradient_bytes;
static_assert(exchange_offset + static_cast<int>(sizeof(Exchange)) <= shared_bytes, "host and device agree");

__device__ __forceinline__ int query_tiles_of(const AttentionParameters& p) {
  return (p.q_len + block_m - 1) / block_m;
}
__device__ __forceinline__ int key_tiles_of(const AttentionParameters& p) { return (p.kv_len + block_n - 1) / block_n; }

/// First of a row's place in the row statistics, which are padded to whole tiles.
__device__ __forceinline__ long long statistics_of(const AttentionParameters& p, int b, int h, int query_tile) {
  return ((static_cast<long long>(b) * p.query_heads + h) * query_tiles_of(p) + query_tile) * block_m;
}

/// Sums of dQ of one tile: a share for each warpgroup, in the order of its accumulators, so that a thread adds four
/// neighbours at a time.
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
      copy_box(shared + panel * key_panel_bytes, &maps.key, exchange.keys_full, panel * panel_columns,
               item.key_tile * block_n, item.kv_head, item.b);
    }
#pragma unroll
    for (int panel = 0; panel < value_panels; ++panel) {
      copy_box(shared + value_offset + panel * key_panel_bytes, &maps.value, exchange.keys_full, panel * panel_columns,
               item.key_tile * block_n, item.kv_head, item.b);
    }
  }

  __device__ __forceinline__ void copy_queries(const TileEntry& entry, int b, int h) {
    const int first_q = entry.tile * block_m;
    const long long statistics = statistics_of(p, b, h, entry.tile);
    TransferBarrier& query_full = exchange.query_full[stage.index];
    exchange.query_empty[stage.index].wait(stage.parity);
    exchange.steps[stage.index] = {entry.tile, entry.mask, h};
    query_full.arrive_and_expect(query_bytes + block_m * 4);
#pragma unroll 1
    for (int panel = 0; panel < query_panels; ++panel) {
      copy_box(shared + query_offset + stage.index * query_bytes + panel * query_panel_bytes, &maps.query, query_full,
               panel * panel_columns, first_q, h, b);
    }
    copy_bytes(shared_address(exchange.lse[stage.index]), p.shifted_lse + statistics, block_m * 4, query_full);
    TransferBarrier& out_gradient_full = exchange.out_gradient_full[stage.index];
    exchange.out_gradient_empty[stage.index].wait(stage.parity);
    out_gradient_full.arrive_and_expect(out_gradient_bytes + block_m * 4);
#pragma unroll 1
    for (int panel = 0; panel < value_panels; ++panel) {
      copy_box(shared + out_gradient_offset + stage.index * out_gradient_bytes + panel * query_panel_bytes,
               &maps.out_gradient, out_gradient_full, panel * panel_columns, first_q, h, b);
    }
    copy_bytes(shared_address(exchange.delta[stage.index]), p.delta + statistics, block_m * 4, out_gradient_full);
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
        for (int i = 0; i < list.count; ++i) copy_queries(list.entry(i), item.b, h);
      }
      exchange.item_empty[slot.index].arrive();
      slot.advance();
    }
  }
};

/// Finds out what item `number` is; order as in the forward, keys and queries exchanged.
__device__ __forceinline__ void look_up(BackwardItem& item, const AttentionParameters& p, int number) {
  const int key_tiles = key_tiles_of(p);
  const int group = p.query_heads / p.kv_heads;
  const int heads = p.batch * p.kv_heads;
  const int section = p.section_heads / group > 0 ? p.section_heads / group : 1;
  const int per_section = section * key_tiles;
  const int first_head = number / per_section * section;
  const int heads_here = heads - first_head < section ? heads - first_head : section;
  const int within = number % per_section;
  const int rank = within / heads_here;
  const int head = first_head + within - rank * heads_here;
  item.b = head / p.kv_heads;
  item.kv_head = head - item.b * p.kv_heads;
  item.key_tile = rank;
  const int first_h = item.kv_head * group;
  if constexpr (has_plan) {
    const int plan_b = p.by_key.plan_batch == 1 ? 0 : item.b;
    const int plan_h = p.by_key.plan_heads == 1 ? 0 : first_h;
    item.key_tile = p.by_key.order[(static_cast<long long>(plan_b) * p.by_key.plan_heads + plan_h) * key_tiles + rank];
  }
  item.steps = 0;
  for (int h = first_h; h < first_h + group; ++h) item.steps += query_list(p, item.b, h, item.key_tile).count;
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
constexpr int elements_per_row = block_m / 4;

/// One consumer warpgroup's view of an item.
struct Consumer {
  const AttentionParameters& p;
  const ProgramArguments& mask;
  const ProgramArguments& score;
  int b;
  int tile_first_k;

  // Computed anew where they are needed: registers are dear.
  __device__ __forceinline__ static int thread() { return computed_here(static_cast<int>(threadIdx.x)); }
  /// In the tile of keys: this lane's first; its second is eight below.
  __device__ __forceinline__ static int row() {
    const int t = thread() - warpgroup_threads;
    return t / 32 * 16 + t % 32 / 4;
  }
  /// In the tile of queries: this lane's first.
  __device__ __forceinline__ static int column() { return thread() % 4 * 2; }
  /// In the tensor: this lane's first key.
  __device__ __forceinline__ int first_k() const { return tile_first_k + row(); }

  __device__ __forceinline__ bool masked(const Step& step) const {
    return step.mask != full_tile || tile_first_k + block_n > p.kv_len;
  }

  /// Flags of one tile. Called before its scores are asked for, when their registers are free.
  __device__ __forceinline__ void flags(u32 (&words)[2], const Step& step) const {
    words[0] = words[1] = 0xffffffffu;
    if constexpr (has_plan) {
      if (step.mask >= 0) {
        const long long first = (static_cast<long long>(step.mask) * block_n + row()) * 4 + column() / 2;
        words[0] = p.by_key.bits[first];
        words[1] = p.by_key.bits[first + 32];
      } else if (step.mask == evaluated_tile) {
        evaluate(words, step);
      }
    }
    const int rest = p.kv_len - first_k();
    if (rest <= 0) words[0] = 0;
    if (rest <= 8) words[1] = 0;
  }

  __device__ __forceinline__ void evaluate(u32 (&words)[2], const Step& step) const {
    const int first_q = step.query_tile * block_m + column();
    const int first_k = this->first_k();
    const int h = computed_here(step.h);
    words[0] = words[1] = 0;
    if constexpr (lowering == Lowering::column_bounds) {
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
#pragma unroll 2
      for (int e = 0; e < elements_per_row; ++e) {
        const int q = first_q + e / 2 * 8 + e % 2;
        if (MaskProgram::visible(mask, b, h, q, first_k, p.q_len, p.kv_len)) words[0] |= 1u << e;
        if (MaskProgram::visible(mask, b, h, q, first_k + 8, p.q_len, p.kv_len)) words[1] |= 1u << e;
      }
    }
  }
};

/// Elements n and n + 1 of a lane's row `half` in block `block` of eight columns.
__device__ __forceinline__ constexpr int element_of(int block, int half) { return 4 * block + 2 * half; }

/// Scores become weights. `lse` points at the lane's first column.
__device__ __forceinline__ void weigh(float (&scores)[block_m / 2], const float* lse, float exponent) {
#pragma unroll
  for (int column = 0; column < block_m; column += 8) {
    const TwoFloats shift = *reinterpret_cast<const TwoFloats*>(lse + column);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = element_of(column / 8, half);
      scores[i] = exp2_fast(scores[i] * exponent - shift.of[0]);
      scores[i + 1] = exp2_fast(scores[i + 1] * exponent - shift.of[1]);
    }
  }
}

__device__ __forceinline__ void hide(float (&values)[block_m / 2], const u32 (&words)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int e = 0; e < elements_per_row; ++e) {
      if ((words[half] >> e & 1u) == 0) values[element_of(e / 2, half) + e % 2] = 0.f;
    }
  }
}

/// dP becomes dS.
__device__ __forceinline__ void differentiate(float (&gradients)[block_m / 2], const float (&weights)[block_m / 2],
                                              const float* delta) {
#pragma unroll
  for (int column = 0; column < block_m; column += 8) {
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
                                                        float (&scores)[block_m / 2], float (&gradients)[block_m / 2],
                                                        const float* lse, const float* delta) {
  const int first_q = step.query_tile * block_m + Consumer::column();
  const int first_k = c.first_k();
#pragma unroll
  for (int i = 0; i < block_m / 2; ++i) {
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

__device__ __forceinline__ void pack_fragments(u32 (&fragments)[block_m / 4], const float (&values)[block_m / 2]) {
#pragma unroll
  for (int i = 0; i < block_m / 2; i += 2) fragments[i / 2] = pack_pair<is_bf16>(values[i], values[i + 1]);
}

/// Puts a warp's 16 rows of dS^T where the product with the keys reads them: rows of 128 bytes, in the swizzle that
/// wgmma expects.
__device__ __forceinline__ void store_fragments(u32 shared, const u32 (&fragments)[block_m / 4]) {
  const int thread = static_cast<int>(threadIdx.x) - warpgroup_threads;
  const int lane = thread % 32;
  const int at_row = thread / 32 * 16 + lane % 16;
  const u32 row_address = shared + static_cast<u32>(at_row * panel_row_bytes);
#pragma unroll
  for (int i = 0; i < block_m / 4; i += 4) {
    const int chunk = i / 2 % 8 + lane / 16;
    const u32 address = row_address + i / 16 * key_panel_bytes + ((chunk ^ at_row % 8) << 4);
    store_matrices(address, fragments[i], fragments[i + 1], fragments[i + 2], fragments[i + 3]);
  }
}

/// In shared memory, not in a register: whoever notes it sees it when the warpgroups ask one another.
__device__ __forceinline__ void note_doubt(Exchange& exchange, const float (&values)[block_m / 2]) {
  float sum = 0.f;  // stays 0 as long as all are finite
#pragma unroll
  for (int i = 0; i < block_m / 2; ++i) sum = values[i] * 0.f + sum;
  if (!(sum == 0.f)) exchange.doubtful = true;
}

constexpr int consumer_threads = consumer_warpgroups * warpgroup_threads;
constexpr int exchange_barrier = 1;
constexpr int doubt_barrier = 2;
constexpr int request_barrier = 3;
constexpr int cleaned_barrier = 4;
constexpr int cleaning_threads = 64;
constexpr int nothing_more_to_clean = -1;

/// Keeps NaN and infinity of hidden elements out of the products, where they would meet weights of 0 (0 * NaN is NaN).
/// Rows that hold some show it in their raw scores, or in dP. In a tile that hides pairs and shows such rows, query, dO
/// and key are cleaned in shared memory, behind the products that make scores. What visible elements would have done:
/// - of query: scores are NaN, or the row's LSE and delta are, and with them its dS;
/// - of dO: delta is NaN; to dV they are added from global memory when the item is done (add_what_was_cleaned);
/// - of key: cleaned for the item's later tiles too, so the key's pairs are set by rule from then on (poison).
/// Two warps that have nothing else to do clean what consumers ask for. Rare, so written for size.
struct Cleaner {
  Exchange& exchange;
  unsigned char* shared;

  template <int bytes, typename Found>
  __device__ __forceinline__ void clean(unsigned char* tile, const Found& found) const {
    EightElements* const chunks = reinterpret_cast<EightElements*>(tile);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % cleaning_threads; i < bytes / 16; i += cleaning_threads) {
      EightElements elements = chunks[i];
      u32 changed = 0;
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const u32 finite = finite_part<is_bf16>(elements.pairs[pair]);
        changed |= finite ^ elements.pairs[pair];
        elements.pairs[pair] = finite;
      }
      if (changed == 0) continue;
      chunks[i] = elements;
      found(i);
    }
  }
  __device__ __forceinline__ void run() const {
    while (true) {
      named_barrier_wait(request_barrier, consumer_threads + cleaning_threads);
      const long long stage = exchange.stage_to_clean;
      if (stage == nothing_more_to_clean) return;
      exchange.doubtful = false;
      exchange.cleaned = true;
      clean<query_bytes>(shared + query_offset + stage * query_bytes, [](int) {});
      clean<out_gradient_bytes>(shared + out_gradient_offset + stage * out_gradient_bytes,
                                [&](int) { exchange.cleaned_out_gradients = true; });
      clean<key_bytes>(shared, [&](int chunk) { exchange.cleaned_keys.set(chunk * 16 / panel_row_bytes % block_n); });
      products_see_stores();
      named_barrier_arrive(cleaned_barrier, consumer_threads + cleaning_threads);
    }
  }
};

/// By all consumer threads, whose barriers these are.
__device__ __forceinline__ void ask_for_cleaning(Exchange& exchange, int stage) {
  if (threadIdx.x == warpgroup_threads) exchange.stage_to_clean = stage;
  named_barrier_arrive(request_barrier, consumer_threads + cleaning_threads);
}
__device__ __forceinline__ void wait_for_cleaning() {
  named_barrier_wait(cleaned_barrier, consumer_threads + cleaning_threads);
}

/// Weights and dS of visible pairs of cleaned keys. A score of such a key is NaN or infinite. If the row's LSE is
/// finite, all its scores were -inf, so that the weight is 0; else it is NaN, as dS always is. Rows without weights
/// keep theirs. On packed fragments, when the registers of scores are free.
__device__ __forceinline__ void poison(const Exchange& exchange, int stage, const u32 (&words)[2],
                                       u32 (&weights)[block_m / 4], u32 (&gradients)[block_m / 4]) {
  constexpr u32 not_a_number_bits = 0x7fff;  // in either format
  const int row = Consumer::row();
  const float* const first_lse = exchange.lse[computed_here(stage)] + Consumer::column();
  const u32 cleaned[2] = {exchange.cleaned_keys.test(row) ? words[0] : 0,
                          exchange.cleaned_keys.test(row + 8) ? words[1] : 0};
#pragma unroll
  for (int i = 0; i < block_m / 4; ++i) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float lse = first_lse[i / 2 * 8 + e];
      const float delta = first_lse[num_stages * block_m + i / 2 * 8 + e];
      const bool has_weights = lse != -minus_infinity() || delta != delta;
      if (!has_weights || (cleaned[i % 2] >> (i / 2 * 2 + e) & 1u) == 0) continue;
      const int shift = 16 * e;
      const u32 others = ~(0xffffu << shift);
      weights[i] = (weights[i] & others) | (lse * 0.f == 0.f ? 0 : not_a_number_bits << shift);
      gradients[i] = (gradients[i] & others) | not_a_number_bits << shift;
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

/// Where the operands of a consumer warpgroup stand in shared memory.
struct Operands {
  static constexpr int warpgroup_row_bytes = 64 * panel_row_bytes;

  u32 shared;
  int warpgroup;
  u64 key_rows;
  u64 value_rows;
  u64 key_columns;
  int score_gradient_share;  // bytes past the first of dS

  __device__ __forceinline__ Operands(u32 shared, int warpgroup)
      : shared(shared),
        warpgroup(warpgroup),
        key_rows(operand_descriptor(shared + warpgroup * warpgroup_row_bytes, 0)),
        value_rows(operand_descriptor(shared + value_offset + warpgroup * warpgroup_row_bytes, 0)),
        key_columns(operand_descriptor(shared + warpgroup * (split_by_column ? key_panel_bytes
                                                             : split_by_key  ? warpgroup_row_bytes
                                                                             : 0),
                                       key_panel_bytes)),
        score_gradient_share(warpgroup * (split_by_query ? key_panel_bytes
                                          : split_by_key ? warpgroup_row_bytes
                                                         : 0)) {}
  __device__ __forceinline__ u32 query(u32 step) const {
    return shared + query_offset + step % num_stages * query_bytes;
  }
  __device__ __forceinline__ u32 out_gradient(u32 step) const {
    return shared + out_gradient_offset + step % num_stages * out_gradient_bytes;
  }
  __device__ __forceinline__ u32 score_gradients(u32 step) const {
    return shared + score_gradient_offset + step % score_gradient_buffers * score_gradient_bytes;
  }
};

/// Starts dQ and dK of a step.
__device__ __forceinline__ void ask_for_gradients(const Operands& at, u32 step, bool accumulate,
                                                  float (&query_gradient)[query_gradient_floats],
                                                  float (&key_gradient)[padded_qk / 2]) {
  const u32 score_gradients = at.score_gradients(step);
  products_fence();
  multiply_query_gradient(
      query_gradient, operand_descriptor(score_gradients + at.score_gradient_share, key_panel_bytes), at.key_columns);
  close_product_group();
  pin(key_gradient);
  products_fence();
  accumulate_key_gradient(key_gradient,
                          operand_descriptor(score_gradients + at.warpgroup * Operands::warpgroup_row_bytes, 0),
                          operand_descriptor(at.query(step), query_panel_bytes), accumulate);
  close_product_group();
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
  return {__shfl_sync(0xffffffffu, step.query_tile, 0), __shfl_sync(0xffffffffu, step.mask, 0),
          __shfl_sync(0xffffffffu, step.h, 0)};
}

/// Scores of a step become weights and dP becomes dS, when the products that make dP are done. `lse` and `delta` point
/// at the lane's first column.
__device__ __forceinline__ void make_gradients(Exchange& exchange, const Consumer& c, const Step& step, bool masked,
                                               const float* lse, const float* delta, float exponent,
                                               const u32 (&words)[2], float (&scores)[block_m / 2],
                                               float (&gradients)[block_m / 2]) {
  if (has_plan && masked) note_doubt(exchange, scores);
  if constexpr (has_score) {
    wait_for_products<0>();
    pin(gradients);
    if (has_plan && masked) note_doubt(exchange, gradients);
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
    if (has_plan && masked) note_doubt(exchange, gradients);
    differentiate(gradients, scores, delta);
    if (masked) hide(gradients, words);
  }
}

/// If this step's tile may hold NaN or infinity that must not meet weights of 0, has it cleaned.
__device__ __forceinline__ void clean_if_doubtful(Exchange& exchange, u32 stage, bool masked, u32 (&words)[2],
                                                  u32 (&weights)[block_m / 4], u32 (&gradients)[block_m / 4]) {
  if (masked && named_barrier_any(doubt_barrier, consumer_threads, exchange.doubtful)) {
    ask_for_cleaning(exchange, static_cast<int>(stage));
    wait_for_cleaning();
  }
  if (exchange.cleaned) {
    if (!masked) words[0] = words[1] = 0xffffffffu;
    poison(exchange, static_cast<int>(stage), words, weights, gradients);
  }
}

/// Writes dK and dV of an item.
__device__ __forceinline__ void store_gradients(const Consumer& c, const BackwardItem& item,
                                                const float (&key_gradient)[padded_qk / 2],
                                                const float (&value_gradient)[padded_v / 2]) {
  unsigned short* const key_matrix = matrix_of(c.p.key_gradient, item.b, item.kv_head);
  unsigned short* const value_matrix = matrix_of(c.p.value_gradient, item.b, item.kv_head);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const long long k = c.first_k() + 8 * half;
    const bool inside = k < c.p.kv_len;
    store_row<padded_qk>(key_matrix + k * c.p.key_gradient.stride_row, key_gradient, half, c.p.scale, inside,
                         head_dim_qk);
    store_row<padded_v>(value_matrix + k * c.p.value_gradient.stride_row, value_gradient, half, 1.f, inside,
                        head_dim_v);
  }
}

/// At the end of an item of which tiles were cleaned.
__device__ __forceinline__ void forget_cleaning(Exchange& exchange) {
  named_barrier_wait(doubt_barrier, consumer_threads);
  exchange.cleaned_keys.words[threadIdx.x % (block_n / 32)] = 0;
  exchange.cleaned = exchange.cleaned_out_gradients = false;
  named_barrier_wait(doubt_barrier, consumer_threads);
}

/// Consumer warpgroup `warpgroup`: 64 keys of every item.
__device__ __forceinline__ void consume(const AttentionParameters& p, const ProgramArguments& mask,
                                        const ProgramArguments& score, Exchange& exchange, u32 shared, int warpgroup) {
  const bool first_lane = threadIdx.x % 32 == 0;
  const auto release = [&](TransferBarrier& barrier) {
    __syncwarp();
    if (first_lane) barrier.arrive();
  };
  const Operands at(shared, warpgroup);
  const float exponent = p.scale * log2_e;
  // Registers are dear here: one number says where the rings of stages and of dS stand, one where that of items does.
  u32 step_number = 0;
  u32 item_number = 0;
  while (true) {
    const u32 slot = item_number % item_slots;
    exchange.item_full[slot].wait(item_number / item_slots % 2);
    const BackwardItem& item = exchange.items[slot];
    const int steps = item.steps;
    if (steps == no_more_items) break;
    const Consumer c = {p, mask, score, item.b, item.key_tile * block_n};
    float key_gradient[padded_qk / 2];
    float value_gradient[padded_v / 2];
#pragma unroll
    for (int i = 0; i < padded_qk / 2; ++i) key_gradient[i] = 0.f;
#pragma unroll
    for (int i = 0; i < padded_v / 2; ++i) value_gradient[i] = 0.f;
    exchange.keys_full.wait(item_number % 2);
    float query_gradient[query_gradient_floats];
    u32 words[2];
    Step step = {};
    float* sums = nullptr;
    if (steps > 0) {
      int i = 0;
#pragma unroll 1
      do {
        const u32 stage = step_number % num_stages;
        const u32 out_gradient = at.out_gradient(step_number);
        const float* const lse = exchange.lse[stage] + Consumer::column();
        const float* const delta = exchange.delta[stage] + Consumer::column();
        exchange.query_full[stage].wait(step_number / num_stages % 2);
        step = read_step(exchange, stage, first_lane, step);
        const bool masked = c.masked(step);
        if (masked) c.flags(words, step);
        float scores[block_m / 2];
        float gradients[block_m / 2];
        // dQ and dK of the step before, beside the scores of this one. The first has none before it, and what comes of
        // this is not used.
        ask_for_gradients(at, step_number - 1, i > 1, query_gradient, key_gradient);
        products_fence();
        multiply_scores(scores, at.key_rows, operand_descriptor(at.query(step_number), 0));
        close_product_group();
        wait_for_products<2>();
        pin(query_gradient);
        if (i > 0) add_query_gradient(sums, query_gradient);
        exchange.out_gradient_full[stage].wait(step_number / num_stages % 2);
        products_fence();
        multiply_weight_gradients(gradients, at.value_rows, operand_descriptor(out_gradient, 0));
        close_product_group();
        wait_for_products<1>();
        pin(scores);
        pin(key_gradient);
        if (i > 0) release(exchange.query_empty[(step_number - 1) % num_stages]);
        u32 weight_fragments[block_m / 4];
        u32 gradient_fragments[block_m / 4];
        make_gradients(exchange, c, step, masked, lse, delta, exponent, words, scores, gradients);
        pack_fragments(weight_fragments, scores);
        pack_fragments(gradient_fragments, gradients);
        if (has_plan) clean_if_doubtful(exchange, stage, masked, words, weight_fragments, gradient_fragments);
        pin(value_gradient);
        pin(weight_fragments);
        products_fence();
        accumulate_value_gradient(value_gradient, weight_fragments, operand_descriptor(out_gradient, query_panel_bytes),
                                  i > 0);
        close_product_group();
        store_fragments(at.score_gradients(step_number), gradient_fragments);
        products_see_stores();
        sums = query_gradient_sums(p, c.b, step.h, step.query_tile) +
               (split_by_key ? 0 : warpgroup * query_gradient_share_floats);
        wait_for_products<0>();
        pin(value_gradient);
        pin(weight_fragments);
        release(exchange.out_gradient_empty[stage]);
        named_barrier_wait(exchange_barrier, consumer_threads);
        ++step_number;
      } while (++i < steps);
      ask_for_gradients(at, step_number - 1, steps > 1, query_gradient, key_gradient);
      wait_for_products<0>();
      pin(query_gradient);
      pin(key_gradient);
      add_query_gradient(sums, query_gradient);
      release(exchange.query_empty[(step_number - 1) % num_stages]);
    }
    release(exchange.keys_empty);
    store_gradients(c, item, key_gradient, value_gradient);
    if (has_plan && exchange.cleaned) {
      if (exchange.cleaned_out_gradients) add_what_was_cleaned(c, item);
      forget_cleaning(exchange);
    }
    exchange.item_empty[slot].arrive();
    ++item_number;
  }
  if (has_plan) ask_for_cleaning(exchange, nothing_more_to_clean);
}

}  // namespace flashspan_device

/// What each query row needs: delta = rowsum(dO * O) - dLSE and LSE in the units of weigh(), rows past the length
/// included; and zeros to sum dQ on.
extern "C" __global__ void __launch_bounds__(flashspan_device::delta_threads)
    attention_backward_delta(const __grid_constant__ flashspan_device::AttentionParameters p,
                             const __grid_constant__ flashspan_device::ProgramArguments mask,
                             const __grid_constant__ flashspan_device::ProgramArguments score) {
  using namespace flashspan_device;
  (void)mask;
  (void)score;
  constexpr int lanes_per_row = delta_lanes_per_row;
  static_assert(head_dim_v <= 8 * lanes_per_row);
  const long long padded_row =
      static_cast<long long>(blockIdx.x) * (delta_threads / lanes_per_row) + threadIdx.x / lanes_per_row;
  const int lane = static_cast<int>(threadIdx.x) % lanes_per_row;
  const int rows_per_head = p.statistics_rows;
  if (padded_row >= static_cast<long long>(p.batch) * p.query_heads * rows_per_head) return;
  const int q = static_cast<int>(padded_row % rows_per_head);
  const int h = static_cast<int>(padded_row / rows_per_head % p.query_heads);
  const int b = static_cast<int>(padded_row / rows_per_head / p.query_heads);
  const bool inside = q < p.q_len;
  float sum = 0.f;
  if (inside && lane * 8 < head_dim_v) {
    const int first_column = lane * 8;
    const EightElements out =
        *reinterpret_cast<const EightElements*>(matrix_of(p.out, b, h) + q * p.out.stride_row + first_column);
    const EightElements gradient = *reinterpret_cast<const EightElements*>(
        matrix_of(p.out_gradient, b, h) + q * p.out_gradient.stride_row + first_column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float result = widen<is_bf16>(static_cast<unsigned short>(out.pairs[i] >> 16 * e));
        // 0 adds 0 whatever dO holds (backward_rows.cuh).
        if (result != 0.f) sum += result * widen<is_bf16>(static_cast<unsigned short>(gradient.pairs[i] >> 16 * e));
      }
    }
  }
#pragma unroll
  for (int distance = lanes_per_row / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  constexpr int floats_per_row = query_gradient_tile_floats / block_m;
  float* const sums = p.query_gradient_sums + padded_row * floats_per_row;
  const int first_sum = lane * 4;
#pragma unroll
  for (int i = 0; i < floats_per_row; i += 4 * lanes_per_row) {
    if (i + first_sum < floats_per_row) *reinterpret_cast<FourFloats*>(sums + i + first_sum) = FourFloats{};
  }
  if (lane != 0) return;
  const float lse = inside ? *row_value(p.lse, b, h, q) : minus_infinity();
  const bool saw_nothing = lse == minus_infinity();
  if (inside && p.lse_gradient.data != nullptr) sum -= *row_value(p.lse_gradient, b, h, q);
  p.delta[padded_row] = saw_nothing ? 0.f : sum;
  // A row that saw nothing, or lies outside, gets weight exp2(s - inf) = 0.
  p.shifted_lse[padded_row] = saw_nothing ? -minus_infinity() : lse * score_per_natural;
}

extern "C" __global__ void __launch_bounds__(flashspan_device::hopper_threads, 1)
    attention_backward_tiles(const __grid_constant__ flashspan_device::AttentionParameters p,
                             const __grid_constant__ flashspan_device::ProgramArguments mask,
                             const __grid_constant__ flashspan_device::ProgramArguments score,
                             const __grid_constant__ flashspan_device::TensorMaps maps) {
  using namespace flashspan_device;
  extern __shared__ __align__(1024) unsigned char shared[];
  Exchange& exchange = *reinterpret_cast<Exchange*>(shared + exchange_offset);
  if (threadIdx.x == 0) {
    exchange.keys_full.init(1);
    exchange.keys_empty.init(num_warps);
    for (int stage = 0; stage < num_stages; ++stage) {
      exchange.query_full[stage].init(1);
      exchange.query_empty[stage].init(num_warps);
      exchange.out_gradient_full[stage].init(1);
      exchange.out_gradient_empty[stage].init(num_warps);
    }
    for (int slot = 0; slot < item_slots; ++slot) {
      exchange.item_full[slot].init(1);
      exchange.item_empty[slot].init(num_warps * 32 + 1);
    }
    for (u32& word : exchange.cleaned_keys.words) word = 0;
    exchange.doubtful = exchange.cleaned = exchange.cleaned_out_gradients = false;
    barriers_visible();
  }
  __syncthreads();
  // Through a shuffle, so that the compiler knows it is the same in all lanes (forward_hopper.cuh).
  const int warpgroup = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / warpgroup_threads, 0);
  if (warpgroup == 0) {
    shrink_registers<producer_registers>();
    if (threadIdx.x == 0) {
      prefetch_map(&maps.query);
      prefetch_map(&maps.key);
      prefetch_map(&maps.value);
      prefetch_map(&maps.out_gradient);
      Producer{p, maps, exchange, shared_address(shared)}.run();
    } else if (threadIdx.x == 32) {
      hand_out_items(p, exchange);
    } else if (has_plan && threadIdx.x >= warpgroup_threads - cleaning_threads) {
      Cleaner{exchange, shared}.run();
    }
  } else {
    grow_registers<consumer_registers>();
    consume(p, mask, score, exchange, shared_address(shared), warpgroup - 1);
  }
}

/// dQ = scale * the sums, rounded; one block a tile of queries.
extern "C" __global__ void __launch_bounds__(flashspan_device::consumer_warpgroups* flashspan_device::warpgroup_threads)
    attention_backward_query_gradient(const __grid_constant__ flashspan_device::AttentionParameters p,
                                      const __grid_constant__ flashspan_device::ProgramArguments mask,
                                      const __grid_constant__ flashspan_device::ProgramArguments score) {
  using namespace flashspan_device;
  (void)mask;
  (void)score;
  const int query_tiles = query_tiles_of(p);
  const int query_tile = static_cast<int>(blockIdx.x) % query_tiles;
  const int h = static_cast<int>(blockIdx.x) / query_tiles % p.query_heads;
  const int b = static_cast<int>(blockIdx.x) / query_tiles / p.query_heads;
  const int warpgroup = static_cast<int>(threadIdx.x) / warpgroup_threads;
  const int thread = static_cast<int>(threadIdx.x) % warpgroup_threads;
  if (warpgroup >= query_gradient_shares) return;
  const int share = warpgroup * query_gradient_share_floats;
  const int first_sum = thread * 4;
  const float* const sums = query_gradient_sums(p, b, h, query_tile) + share + first_sum;
  float gradient[query_gradient_floats];
#pragma unroll
  for (int i = 0; i < query_gradient_share_floats; i += 4 * warpgroup_threads) {
    const FourFloats four = *reinterpret_cast<const FourFloats*>(sums + i);
#pragma unroll
    for (int j = 0; j < 4; ++j) gradient[i / warpgroup_threads + j] = four.of[j];
  }
  const int first_column = split_by_column ? warpgroup * query_gradient_columns : 0;
  const int first_q =
      query_tile * block_m + (split_by_query ? warpgroup * 64 : 0) + thread / 32 * 16 + FragmentPlace::of_lane().row;
  unsigned short* const matrix = matrix_of(p.query_gradient, b, h) + first_column;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const long long q = first_q + 8 * half;
    store_row<query_gradient_columns>(matrix + q * p.query_gradient.stride_row, gradient, half, p.scale, q < p.q_len,
                                      head_dim_qk - first_column);
  }
}
