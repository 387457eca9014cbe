// backward_query_pass.cuh -- dQ of a hopper backward in a pass of its own, stationary over queries: scores and dP are
// computed a second time, and dQ = dS K is summed in registers, in the order of the keys. It needs no memory for sums
// and gives the same bits every time; the price is two products more than attention_backward_tiles alone.
//
// Block and roles as in forward_hopper.cuh. Of one step of keys to the next, dQ of the step before is computed beside
// the scores and dP of this one.
#pragma once

#include "attention/backward_hopper.cuh"
#include "attention/pair_flags.cuh"
#include "attention/row_items.cuh"

namespace flashspan_device::query_pass {

constexpr int consumer_warpgroups = block_m / 64;
constexpr int query_panel_bytes = block_m * panel_row_bytes;
constexpr int key_panel_bytes = key_step * panel_row_bytes;
constexpr int query_bytes = query_panels * query_panel_bytes;
constexpr int out_gradient_bytes = value_panels * query_panel_bytes;
constexpr int key_bytes = query_panels * key_panel_bytes;
constexpr int value_bytes = value_panels * key_panel_bytes;
constexpr int steps_per_tile = block_n / key_step;
constexpr int cleaning_barrier = 1;

/// dQ of the step before is computed last, beside the exponentials of this one. Wide head dims leave no registers for
/// that: there it comes first, and dP takes the registers of what it is made of.
constexpr bool dq_first = padded_qk > 192;
constexpr int pending_beside_scores = dq_first ? 1 : 2;

/// One step, as the consumers need to know it.
struct KeyStep {
  int number;  // of its keys, counted in steps
  int mask;    // as TileEntry::mask
};

/// Shared memory that is no tile.
struct Exchange {
  TransferBarrier query_full, query_empty;
  TransferBarrier key_full[key_stages], key_empty[key_stages];
  TransferBarrier key_raw[key_stages];  // arrived, to be cleaned
  TransferBarrier value_full[value_stages], value_empty[value_stages];
  KeyStep steps[key_stages];
  RowFlags<key_step> cleaned[key_stages];  // keys of a careful item that held what is not finite
  ItemSlots items;
};

constexpr int out_gradient_offset = query_bytes;
constexpr int first_key_offset = out_gradient_offset + out_gradient_bytes;
constexpr int first_value_offset = first_key_offset + key_stages * key_bytes;
constexpr int exchange_offset = first_value_offset + value_stages * value_bytes;
static_assert(exchange_offset + static_cast<int>(sizeof(Exchange)) <= shared_bytes, "host and device agree");

/// The one thread that starts all copies.
struct Producer {
  const AttentionParameters& p;
  const TensorMaps& maps;
  Exchange& exchange;
  u32 shared;
  Ring<key_stages> key = {0, 1};
  Ring<value_stages> value = {0, 1};
  u32 query_parity = 1;

  __device__ __forceinline__ void copy_queries(const WorkItem& item) {
    exchange.query_empty.wait(query_parity);
    query_parity ^= 1;
    exchange.query_full.arrive_and_expect(query_bytes + out_gradient_bytes);
#pragma unroll
    for (int panel = 0; panel < query_panels; ++panel) {
      copy_panel<block_m, query_step>(shared + panel * query_panel_bytes, &maps.query, exchange.query_full,
                                      panel * panel_columns, item.query_tile * block_m, item.h, item.b);
    }
#pragma unroll
    for (int panel = 0; panel < value_panels; ++panel) {
      copy_panel<block_m, query_step>(shared + out_gradient_offset + panel * query_panel_bytes, &maps.out_gradient,
                                      exchange.query_full, panel * panel_columns, item.query_tile * block_m, item.h,
                                      item.b);
    }
  }
  __device__ __forceinline__ void copy_keys(const KeyStep& step, int kv_head, int b, bool careful) {
    exchange.key_empty[key.index].wait(key.parity);
    exchange.steps[key.index] = step;
    TransferBarrier& full = careful ? exchange.key_raw[key.index] : exchange.key_full[key.index];
    full.arrive_and_expect(key_bytes);
#pragma unroll 1
    for (int panel = 0; panel < query_panels; ++panel) {
      copy_box(shared + first_key_offset + key.index * key_bytes + panel * key_panel_bytes, &maps.key, full,
               panel * panel_columns, step.number * key_step, kv_head, b);
    }
    key.advance();
  }
  __device__ __forceinline__ void copy_values(const KeyStep& step, int kv_head, int b) {
    exchange.value_empty[value.index].wait(value.parity);
    TransferBarrier& full = exchange.value_full[value.index];
    full.arrive_and_expect(value_bytes);
#pragma unroll 1
    for (int panel = 0; panel < value_panels; ++panel) {
      copy_box(shared + first_value_offset + value.index * value_bytes + panel * key_panel_bytes, &maps.value, full,
               panel * panel_columns, step.number * key_step, kv_head, b);
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
      copy_queries(item);
#pragma unroll 1
      for (int i = 0; i < item.list.count * steps_per_tile; ++i) {
        const TileEntry entry = item.list.entry(i / steps_per_tile);
        const KeyStep step = {entry.tile * steps_per_tile + i % steps_per_tile, entry.mask};
        copy_keys(step, kv_head, item.b, has_plan && item.careful != 0);
        copy_values(step, kv_head, item.b);
      }
    }
  }
};

/// Two warps that replace what is not finite in keys of careful items by 0, where the tile hides something, and flag
/// the keys.
__device__ __forceinline__ void clean_keys(Exchange& exchange, unsigned char* keys) {
  const int thread = static_cast<int>(threadIdx.x) % cleaning_threads;
  Ring<item_slots> slot;
  Ring<key_stages> key;
  u32 raw_parity = 0;  // a bit per stage
  while (true) {
    exchange.items.full[slot.index].wait(slot.parity);
    const TileList list = exchange.items.item[slot.index].list;
    const bool careful = exchange.items.item[slot.index].careful != 0;
    exchange.items.empty[slot.index].arrive();
    slot.advance();
    if (list.count == no_more_items) return;
#pragma unroll 1
    for (int i = 0; i < list.count * steps_per_tile; ++i, key.advance()) {
      if (!careful) continue;
      exchange.key_raw[key.index].wait(raw_parity >> key.index & 1);
      raw_parity ^= 1u << key.index;
      // Over already, or these keys would not be here: it orders the flags that follow after those read before.
      exchange.key_empty[key.index].wait(key.parity ^ 1);
      exchange.cleaned[key.index].words[thread % (key_step / 32)] = 0;
      named_barrier_wait(cleaning_barrier, cleaning_threads);
      if (list.entry(i / steps_per_tile).mask != full_tile) {
        EightElements* const tile =
            reinterpret_cast<EightElements*>(keys + static_cast<long long>(key.index) * key_bytes);
#pragma unroll 1
        for (int chunk = thread; chunk < key_bytes / 16; chunk += cleaning_threads) {
          EightElements elements = tile[chunk];
          if (!take_non_finite_out<is_bf16>(elements)) continue;
          tile[chunk] = elements;
          exchange.cleaned[key.index].set(chunk * 16 / panel_row_bytes % key_step);
        }
      }
      products_see_stores();
      named_barrier_wait(cleaning_barrier, cleaning_threads);
      if (thread == 0) exchange.key_full[key.index].arrive();
    }
  }
}

/// Columns of one row that a lane holds: element e is column 8 (e / 2) + e % 2 past the lane's first. A word holds a
/// flag for each.
constexpr int elements_per_row = key_step / 4;

/// One consumer warpgroup's view of an item.
struct Consumer {
  const AttentionParameters& p;
  const ProgramArguments& mask;
  const ProgramArguments& score;
  const WorkItem& item;  // in shared memory: registers are dear
  float lse[2];          // of the lane's rows, in units of exponents of 2, +inf for rows without weights
  float delta[2];

  /// In the tile of queries: this lane's first; its second is eight below. Computed anew where it is needed.
  __device__ __forceinline__ static int row() {
    const int thread = computed_here(static_cast<int>(threadIdx.x)) - warpgroup_threads;
    return thread / 32 * 16 + thread % 32 / 4;
  }
  /// In the keys of a step: this lane's first.
  __device__ __forceinline__ static int column() { return computed_here(static_cast<int>(threadIdx.x)) % 4 * 2; }
  /// In the tensor: this lane's first row.
  __device__ __forceinline__ int first_q() const { return item.query_tile * block_m + row(); }

  __device__ __forceinline__ bool masked(const KeyStep& step) const {
    return step.mask != full_tile || (step.number + 1) * key_step > p.kv_len;
  }

  /// Flags of one step. Called before its scores are asked for, when their registers are free.
  __device__ __forceinline__ void flags(u32 (&words)[2], const KeyStep& step) const {
    words[0] = words[1] = 0xffffffffu;
    const int first_k = step.number * key_step + column();
    if constexpr (has_plan) {
      if (step.mask >= 0) {
        const long long first = (static_cast<long long>(step.mask) * block_m + row()) * 4 + column() / 2;
        const int first_flag = step.number % steps_per_tile * elements_per_row;
        words[0] = p.by_query.bits[first] >> first_flag;
        words[1] = p.by_query.bits[first + 32] >> first_flag;
      } else if (step.mask == evaluated_tile) {
        evaluate_pairs<true, elements_per_row>(words, mask, item.b, item.h, first_q(), first_k, p.q_len, p.kv_len);
      }
    }
    const u32 inside = columns_below(p.kv_len - first_k, 0);
    words[0] &= inside;
    words[1] &= inside;
  }

  __device__ __forceinline__ void weigh(float (&scores)[key_step / 2]) const {
    const float exponent = p.scale * log2_e;
#pragma unroll
    for (int i = 0; i < key_step / 2; ++i) scores[i] = exp2_fast(scores[i] * exponent - lse[i / 2 % 2]);
  }
  /// dP becomes dS.
  __device__ __forceinline__ void differentiate(float (&gradients)[key_step / 2],
                                                const float (&weights)[key_step / 2]) const {
#pragma unroll
    for (int i = 0; i < key_step / 2; ++i) gradients[i] = weights[i] * (gradients[i] - delta[i / 2 % 2]);
  }
  /// dP becomes dS, where a score program stands between product and weight.
  __device__ __forceinline__ void weigh_and_differentiate(const KeyStep& step, const float (&scores)[key_step / 2],
                                                          float (&gradients)[key_step / 2]) const {
    const int first_q = this->first_q();
    const int first_k = step.number * key_step + column();
#pragma unroll
    for (int i = 0; i < key_step / 2; ++i) {
      const int q = first_q + i / 2 % 2 * 8;
      const int k = first_k + i / 4 * 8 + i % 2;
      const float natural = scores[i] * p.scale;
      const float modified = MaskProgram::score(score, item.b, item.h, q, k, p.q_len, p.kv_len, natural);
      const float slope = MaskProgram::score_gradient(score, item.b, item.h, q, k, p.q_len, p.kv_len, natural);
      gradients[i] = exp2_fast((modified - lse[i / 2 % 2]) * log2_e) * (gradients[i] - delta[i / 2 % 2]) * slope;
    }
  }

  __device__ __forceinline__ void hide(float (&values)[key_step / 2], const u32 (&words)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < elements_per_row; ++e) {
        if ((words[half] >> e & 1u) == 0) values[e / 2 * 4 + e % 2 + 2 * half] = 0.f;
      }
    }
  }

  /// Visible pairs of cleaned keys have NaN for dS, but in rows without weights (Cleaner in backward_hopper.cuh has the
  /// reasons).
  __device__ __forceinline__ void poison(const RowFlags<key_step>& cleaned, const u32 (&words)[2],
                                         float (&gradients)[key_step / 2]) const {
#pragma unroll
    for (int e = 0; e < elements_per_row; ++e) {
      if (!cleaned.test(column() + e / 2 * 8 + e % 2)) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool has_weights = lse[half] != -minus_infinity() || delta[half] != delta[half];
        if (has_weights && (words[half] >> e & 1u) != 0) {
          gradients[e / 2 * 4 + e % 2 + 2 * half] = not_a_number();
        }
      }
    }
  }
};

__device__ __forceinline__ void pack_fragments(u32 (&fragments)[key_step / 4], const float (&values)[key_step / 2]) {
#pragma unroll
  for (int i = 0; i < key_step / 2; i += 2) fragments[i / 2] = pack_pair<is_bf16>(values[i], values[i + 1]);
}

/// dP becomes dS, when the products that make dP are done.
__device__ __forceinline__ void make_gradients(const Consumer& c, const KeyStep& step, bool masked,
                                               const u32 (&words)[2], float (&scores)[key_step / 2],
                                               float (&gradients)[key_step / 2]) {
  if constexpr (has_score) {
    wait_for_products<pending_beside_scores - 1>();
    pin(gradients);
    c.weigh_and_differentiate(step, scores, gradients);
  } else {
    c.weigh(scores);
    // Not left to the end: the branch keeps the wait behind the exponentials.
    if (masked) c.hide(scores, words);
    wait_for_products<pending_beside_scores - 1>();
    pin(gradients);
    c.differentiate(gradients, scores);
  }
  if (masked) c.hide(gradients, words);
}

__device__ __forceinline__ KeyStep read_step(const Exchange& exchange, int stage, bool first_lane) {
  KeyStep step = {};
  if (first_lane) step = exchange.steps[stage];
  return {__shfl_sync(0xffffffffu, step.number, 0), __shfl_sync(0xffffffffu, step.mask, 0)};
}

/// Starts dQ += dS K of a step whose keys stand in stage `stage`.
__device__ __forceinline__ void ask_for_query_gradient(u32 shared, int stage, bool accumulate,
                                                       const u32 (&gradients)[key_step / 4],
                                                       float (&query_gradient)[padded_qk / 2]) {
  pin(query_gradient);
  products_fence();
  accumulate_query_gradient(query_gradient, gradients,
                            operand_descriptor(shared + first_key_offset + stage * key_bytes, key_panel_bytes),
                            accumulate);
  close_product_group();
}

/// Writes dQ of a warp's 16 rows.
__device__ __forceinline__ void store_rows(const Consumer& c, const float (&query_gradient)[padded_qk / 2]) {
  unsigned short* const matrix = matrix_of(c.p.query_gradient, c.item.b, c.item.h);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const long long q = c.first_q() + 8 * half;
    store_row<padded_qk>(matrix + q * c.p.query_gradient.stride_row, query_gradient, half, c.p.scale, q < c.p.q_len,
                         head_dim_qk);
  }
}

/// Consumer warpgroup `warpgroup`: 64 queries of every item.
__device__ __forceinline__ void consume(const AttentionParameters& p, const ProgramArguments& mask,
                                        const ProgramArguments& score, Exchange& exchange, u32 shared, int warpgroup) {
  const bool first_lane = threadIdx.x % 32 == 0;
  const u64 query_rows = operand_descriptor(shared + warpgroup * 64 * panel_row_bytes, 0);
  const u64 out_gradient_rows = operand_descriptor(shared + out_gradient_offset + warpgroup * 64 * panel_row_bytes, 0);
  Ring<key_stages> key;
  Ring<value_stages> value;
  Ring<item_slots> slot;
  u32 query_parity = 0;
  while (true) {
    exchange.items.full[slot.index].wait(slot.parity);
    const WorkItem& item = exchange.items.item[slot.index];
    if (item.list.count == no_more_items) return;
    if (item.list.count == no_item) {
      exchange.items.empty[slot.index].arrive();
      slot.advance();
      continue;
    }
    const int steps = item.list.count * steps_per_tile;
    const bool careful = has_plan && item.careful != 0;
    Consumer c = {p, mask, score, item, {}, {}};
    const long long statistics = statistics_of(p, item.b, item.h, 0) + c.first_q();
    const float* const lse = p.shifted_lse + statistics;
    const float* const delta = p.delta + statistics;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int below = 8 * half;
      c.lse[half] = lse[below];
      c.delta[half] = delta[below];
    }
    float query_gradient[padded_qk / 2];
#pragma unroll
    for (int i = 0; i < padded_qk / 2; ++i) query_gradient[i] = 0.f;
    if (steps > 0) {
      u32 fragments[key_step / 4] = {};  // dS of the step before
      int before = key.index;            // the stage of its keys
      exchange.query_full.wait(query_parity);
      query_parity ^= 1;
      int i = 0;
#pragma unroll 1
      do {
        u32 words[2];
        float scores[key_step / 2];
        float gradients[key_step / 2];
        exchange.key_full[key.index].wait(key.parity);
        const KeyStep step = read_step(exchange, key.index, first_lane);
        const bool masked = c.masked(step);
        if (masked) c.flags(words, step);
        // The first step has no dQ of a step before it, and what comes of this is not used.
        if (dq_first) ask_for_query_gradient(shared, before, i > 1, fragments, query_gradient);
        products_fence();
        multiply_row_scores(scores, query_rows,
                            operand_descriptor(shared + first_key_offset + key.index * key_bytes, 0));
        close_product_group();
        exchange.value_full[value.index].wait(value.parity);
        if (dq_first) {
          wait_for_products<1>();
          pin(query_gradient);
          pin(fragments);
        }
        products_fence();
        multiply_row_gradients(gradients, out_gradient_rows,
                               operand_descriptor(shared + first_value_offset + value.index * value_bytes, 0));
        close_product_group();
        if (!dq_first) ask_for_query_gradient(shared, before, i > 1, fragments, query_gradient);
        wait_for_products<pending_beside_scores>();
        pin(scores);
        make_gradients(c, step, masked, words, scores, gradients);
        if (careful && masked) c.poison(exchange.cleaned[key.index], words, gradients);
        exchange.value_empty[value.index].arrive();
        wait_for_products<0>();
        pin(query_gradient);
        pin(fragments);
        if (i > 0) exchange.key_empty[before].arrive();
        pack_fragments(fragments, gradients);
        before = key.index;
        key.advance();
        value.advance();
      } while (++i < steps);
      exchange.query_empty.arrive();
      ask_for_query_gradient(shared, before, steps > 1, fragments, query_gradient);
      wait_for_products<0>();
      pin(query_gradient);
      exchange.key_empty[before].arrive();
    }
    store_rows(c, query_gradient);
    if (has_plan && !careful && any_non_finite(query_gradient) && first_lane) {
      atomicOr(&exchange.items.spoilt[slot.index], 1u << Consumer::row() / 16);
    }
    exchange.items.empty[slot.index].arrive();
    slot.advance();
  }
}

}  // namespace flashspan_device::query_pass

extern "C" __global__ void __launch_bounds__(flashspan_device::hopper_threads, 1)
    attention_backward_query_gradient(const __grid_constant__ flashspan_device::AttentionParameters p,
                                      const __grid_constant__ flashspan_device::ProgramArguments mask,
                                      const __grid_constant__ flashspan_device::ProgramArguments score,
                                      const __grid_constant__ flashspan_device::TensorMaps maps) {
  using namespace flashspan_device;
  extern __shared__ __align__(1024) unsigned char shared[];
  query_pass::Exchange& exchange = *reinterpret_cast<query_pass::Exchange*>(shared + query_pass::exchange_offset);
  if (threadIdx.x == 0) {
    exchange.query_full.init(1);
    exchange.query_empty.init(consumer_threads);
    for (int stage = 0; stage < key_stages; ++stage) {
      exchange.key_full[stage].init(1);
      exchange.key_empty[stage].init(consumer_threads);
      exchange.key_raw[stage].init(1);
    }
    for (int stage = 0; stage < value_stages; ++stage) {
      exchange.value_full[stage].init(1);
      exchange.value_empty[stage].init(consumer_threads);
    }
    // Every thread that reads items: those that compute, the one that copies, and those that clean.
    exchange.items.init(consumer_threads + 1 + (has_plan ? cleaning_threads : 0));
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
      query_pass::Producer{p, maps, exchange, shared_address(shared)}.run();
    } else if (threadIdx.x == 32) {
      hand_out_rows(p, exchange.items, rows_of_tiles(p),
                    [&p](WorkItem& item, int number) { look_up(item, p, number); });
    } else if (has_plan && threadIdx.x >= warpgroup_threads - cleaning_threads) {
      query_pass::clean_keys(exchange, shared + query_pass::first_key_offset);
    }
  } else {
    grow_registers<consumer_registers>();
    query_pass::consume(p, mask, score, exchange, shared_address(shared), warpgroup - 1);
  }
}
