// backward_roles.cuh -- the pass over keys for head dims past 128, where one warpgroup has registers for dK or dV of 64
// keys, not for both. The first makes weights of scores, and dV; it hands the weights to the second, which makes dS and
// dK. In both, the gradient of one step is computed beside the first product of the next.
#pragma once

#include "attention/backward_keys.cuh"

namespace flashspan_device {

/// The weights that are handed over, in shared memory: two buffers, used in turn.
struct Weights {
  float* first;

  __device__ __forceinline__ FourFloats* of_thread(u32 step) const {
    const int buffer = static_cast<int>(step % weight_buffers) * (weight_bytes / 4);
    const int mine = Consumer::thread() % warpgroup_threads * 4;
    return reinterpret_cast<FourFloats*>(first + buffer + mine);
  }
  /// Where a thread puts its weights, four at a time, warpgroup_threads apart.
  __device__ __forceinline__ FourFloats* begin(Exchange& exchange, u32 step) const {
    exchange.weights_empty[step % weight_buffers].wait_awake(step / weight_buffers % 2 ^ 1);
    return of_thread(step);
  }
  __device__ __forceinline__ void end(Exchange& exchange, u32 step) const {
    exchange.weights_full[step % weight_buffers].arrive();
  }
  __device__ __forceinline__ void put(Exchange& exchange, u32 step, const float (&weights)[query_step / 2]) const {
    FourFloats* const to = begin(exchange, step);
#pragma unroll
    for (int i = 0; i < query_step / 2; i += 4) {
      const int place = i / 4 * warpgroup_threads;
      to[place] = {{weights[i], weights[i + 1], weights[i + 2], weights[i + 3]}};
    }
    end(exchange, step);
  }
  /// dP becomes dS.
  __device__ __forceinline__ void differentiate(Exchange& exchange, u32 step, float (&gradients)[query_step / 2],
                                                const float* delta) const {
    const u32 buffer = step % weight_buffers;
    exchange.weights_full[buffer].wait_awake(step / weight_buffers % 2);
    const FourFloats* const from = of_thread(step);
#pragma unroll
    for (int i = 0; i < query_step / 8; ++i) {
      const int place = i * warpgroup_threads;
      const int column = 8 * i;
      const FourFloats four = from[place];
      const TwoFloats of_row = *reinterpret_cast<const TwoFloats*>(delta + column);
#pragma unroll
      for (int e = 0; e < 4; ++e) gradients[4 * i + e] = four.of[e] * (gradients[4 * i + e] - of_row.of[e % 2]);
    }
    exchange.weights_empty[buffer].arrive();
  }
};

/// Scores become weights, 0 where they are hidden. What is handed over is those times the slopes of the score program.
__device__ __forceinline__ void weigh_and_put(const Consumer& c, const Step& step, const u32 (&words)[2],
                                              Exchange& exchange, const Weights& weights, u32 step_number,
                                              float (&scores)[query_step / 2], const float* lse) {
  const int first_q = step.number * query_step + Consumer::column();
  const int first_k = c.first_k();
  FourFloats* const to = weights.begin(exchange, step_number);
#pragma unroll
  for (int i = 0; i < query_step / 2; i += 4) {
    FourFloats four;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int half = e / 2;
      const int column = i * 2 + e % 2;
      const int q = first_q + column;
      const int k = first_k + half * 8;
      const float natural = scores[i + e] * c.p.scale;
      const float modified = MaskProgram::score(c.score, c.b, step.h, q, k, c.p.q_len, c.p.kv_len, natural);
      const float slope = MaskProgram::score_gradient(c.score, c.b, step.h, q, k, c.p.q_len, c.p.kv_len, natural);
      const float weight = exp2_fast((modified - lse[column]) * log2_e);
      const bool visible = (words[half] >> (i / 2 + e % 2) & 1u) != 0;
      scores[i + e] = visible ? weight : 0.f;
      four.of[e] = visible ? weight * slope : 0.f;
    }
    const int place = i / 4 * warpgroup_threads;
    to[place] = four;
  }
  weights.end(exchange, step_number);
}

/// The warpgroups wait for each other: not at a barrier of threads, as they stand at different places of the code.
/// `meetings` counts the times.
__device__ __forceinline__ void meet(Exchange& exchange, u32& meetings) {
  exchange.met.arrive();
  exchange.met.wait_awake(meetings++ % 2);
}

/// As clean_if_doubtful. Who is ahead may have noted the doubts of the next time already, which have a flag of their
/// own.
__device__ __forceinline__ void clean_what_either_doubts(Exchange& exchange, u32 stage, u32& meetings) {
  const u32 flag = meetings % 2;
  meet(exchange, meetings);
  if (exchange.doubtful[flag] == 0) return;
  ask_for_cleaning(exchange, static_cast<int>(stage));
  exchange.cleaning_done.wait_awake(exchange.cleanings);
  meet(exchange, meetings);  // all have read it
  if (speaks()) exchange.cleanings ^= 1;
}

/// As forget_cleaning.
__device__ __forceinline__ void forget_together(Exchange& exchange, u32& meetings) {
  meet(exchange, meetings);
  if (speaks()) {
    exchange.cleaned = false;
    exchange.cleaned_out_gradients = 0;
  }
  meet(exchange, meetings);
}

/// The first warpgroup.
__device__ __forceinline__ void make_value_gradients(const AttentionParameters& p, const ProgramArguments& mask,
                                                     const ProgramArguments& score, Exchange& exchange, u32 shared,
                                                     const Weights& weights) {
  const bool first_lane = threadIdx.x % 32 == 0;
  const Operands at(shared, 0);
  const float exponent = p.scale * log2_e;
  u32 step_number = 0;
  u32 item_number = 0;
  u32 meetings = 0;
  while (true) {
    const u32 slot = item_number % item_slots;
    exchange.item_full[slot].wait_awake(item_number / item_slots % 2);
    const BackwardItem& item = exchange.items[slot];
    const int steps = item.steps;
    if (steps == no_more_items) break;
    const Consumer c = {p, mask, score, item.b, item.key_tile * block_n};
    float value_gradient[padded_v / 2];
#pragma unroll
    for (int i = 0; i < padded_v / 2; ++i) value_gradient[i] = 0.f;
    exchange.keys_full.wait_awake(item_number % 2);
    if (steps > 0) {
      u32 fragments[query_step / 4] = {};  // weights of the step before
      Step step = {};
      int i = 0;
#pragma unroll 1
      do {
        const u32 stage = step_number % num_stages;
        const u32 before = (step_number - 1) % num_stages;
        u32 words[2];
        float scores[query_step / 2];
        exchange.query_full[stage].wait_awake(step_number / num_stages % 2);
        step = read_step(exchange, stage, first_lane, step);
        const bool masked = c.masked(step);
        if (masked) c.flags(words, step);
        if (i > 0) exchange.out_gradient_full[before].wait_awake((step_number - 1) / num_stages % 2);
        products_fence();
        multiply_scores(scores, at.key_rows, operand_descriptor(at.query(step_number), 0));
        close_product_group();
        // The first step has none before it, and what comes of this is not used.
        pin(value_gradient);
        products_fence();
        accumulate_value_gradient(value_gradient, fragments,
                                  operand_descriptor(at.out_gradient(step_number - 1), query_panel_bytes), i > 1);
        close_product_group();
        wait_for_products<1>();
        pin(scores);
        if (has_plan && masked) note_doubt(exchange.doubtful[meetings % 2], scores);
        const float* const lse = exchange.lse[stage] + Consumer::column();
        if constexpr (has_score) {
          if (!masked) words[0] = words[1] = 0xffffffffu;
          weigh_and_put(c, step, words, exchange, weights, step_number, scores, lse);
        } else {
          weigh(scores, lse, exponent);
          if (masked) hide(scores, words);
          weights.put(exchange, step_number, scores);
        }
        wait_for_products<0>();
        pin(value_gradient);
        pin(fragments);
        exchange.query_empty[stage].arrive();
        if (i > 0) exchange.out_gradient_empty[before].arrive();
        pack_fragments(fragments, scores);
        if (has_plan && masked) clean_what_either_doubts(exchange, stage, meetings);
        ++step_number;
      } while (++i < steps);
      const u32 last = (step_number - 1) % num_stages;
      exchange.out_gradient_full[last].wait_awake((step_number - 1) / num_stages % 2);
      pin(value_gradient);
      products_fence();
      accumulate_value_gradient(value_gradient, fragments,
                                operand_descriptor(at.out_gradient(step_number - 1), query_panel_bytes), steps > 1);
      close_product_group();
      wait_for_products<0>();
      pin(value_gradient);
      exchange.out_gradient_empty[last].arrive();
    }
    exchange.keys_empty.arrive();
    store_gradient<padded_v>(c, item, p.value_gradient, value_gradient, 1.f, head_dim_v);
    if (has_plan && exchange.cleaned) {
      if (exchange.cleaned_out_gradients != 0) add_what_was_cleaned(c, item);
      forget_together(exchange, meetings);
    }
    exchange.item_empty[slot].arrive();
    ++item_number;
  }
  if (has_plan) ask_for_cleaning(exchange, nothing_more_to_clean);
}

/// The second warpgroup.
__device__ __forceinline__ void make_key_gradients(const AttentionParameters& p, const ProgramArguments& mask,
                                                   const ProgramArguments& score, Exchange& exchange, u32 shared,
                                                   const Weights& weights) {
  const bool first_lane = threadIdx.x % 32 == 0;
  const Operands at(shared, 0);
  u32 step_number = 0;
  u32 item_number = 0;
  u32 meetings = 0;
  while (true) {
    const u32 slot = item_number % item_slots;
    exchange.item_full[slot].wait_awake(item_number / item_slots % 2);
    const BackwardItem& item = exchange.items[slot];
    const int steps = item.steps;
    if (steps == no_more_items) break;
    const Consumer c = {p, mask, score, item.b, item.key_tile * block_n};
    float key_gradient[padded_qk / 2];
#pragma unroll
    for (int i = 0; i < padded_qk / 2; ++i) key_gradient[i] = 0.f;
    exchange.keys_full.wait_awake(item_number % 2);
    if (steps > 0) {
      u32 fragments[query_step / 4] = {};  // dS of the step before
      Step step = {};
      int i = 0;
#pragma unroll 1
      do {
        const u32 stage = step_number % num_stages;
        u32 words[2];
        float gradients[query_step / 2];
        exchange.query_full[stage].wait_awake(step_number / num_stages % 2);
        step = read_step(exchange, stage, first_lane, step);
        const bool masked = c.masked(step);
        if (masked) c.flags(words, step);
        exchange.out_gradient_full[stage].wait_awake(step_number / num_stages % 2);
        products_fence();
        multiply_weight_gradients(gradients, at.value_rows, operand_descriptor(at.out_gradient(step_number), 0));
        close_product_group();
        ask_for_key_gradient(at, step_number - 1, i > 1, fragments, key_gradient);
        wait_for_products<1>();
        pin(gradients);
        if (has_plan && masked) note_doubt(exchange.doubtful[meetings % 2], gradients);
        weights.differentiate(exchange, step_number, gradients, exchange.delta[stage] + Consumer::column());
        if (masked) hide(gradients, words);
        wait_for_products<0>();
        pin(key_gradient);
        pin(fragments);
        exchange.out_gradient_empty[stage].arrive();
        if (i > 0) exchange.query_empty[(step_number - 1) % num_stages].arrive();
        pack_fragments(fragments, gradients);
        if (has_plan && masked) clean_what_either_doubts(exchange, stage, meetings);
        ++step_number;
      } while (++i < steps);
      ask_for_key_gradient(at, step_number - 1, steps > 1, fragments, key_gradient);
      wait_for_products<0>();
      pin(key_gradient);
      exchange.query_empty[(step_number - 1) % num_stages].arrive();
    }
    exchange.keys_empty.arrive();
    store_gradient<padded_qk>(c, item, p.key_gradient, key_gradient, p.scale, head_dim_qk);
    if (has_plan && exchange.cleaned) forget_together(exchange, meetings);
    exchange.item_empty[slot].arrive();
    ++item_number;
  }
  if (has_plan) ask_for_cleaning(exchange, nothing_more_to_clean);
}

}  // namespace flashspan_device
