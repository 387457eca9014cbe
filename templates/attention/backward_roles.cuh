// backward_roles.cuh -- the pass over keys for head dims past 128, where one warpgroup has registers for dK or dV of 64
// keys, not for both. The first makes weights of scores, and dV; it hands the weights to the second, which makes dS and
// dK. Where dQ has no pass of its own, the second hands dS to the first, a step late, and each makes every second panel
// of dQ's columns. While one computes exponentials or dS, the other's products run.
#pragma once

#include "attention/backward_keys.cuh"

namespace flashspan_device {

/// The weights that are handed over, in shared memory: buffers used in turn.
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

/// As clean_if_doubtful; true if it was. Who is ahead may have noted the doubts of the next time already, which have a
/// flag of their own.
__device__ __forceinline__ bool clean_what_either_doubts(Exchange& exchange, int role, u32 stage, u32& meetings) {
  const u32 flag = meetings % 2;
  meet(exchange, meetings);
  if (exchange.doubtful[flag] == 0) return false;
  have_cleaned(exchange, role, static_cast<int>(stage));
  return true;
}

/// As forget_cleaning.
__device__ __forceinline__ void forget_together(Exchange& exchange, u32& meetings) {
  meet(exchange, meetings);
  if (threadIdx.x == warpgroup_threads) {
    for (u32& word : exchange.cleaned_keys.words) word = 0;
    exchange.cleaned = false;
    exchange.cleaned_out_gradients = 0;
  }
  meet(exchange, meetings);
}

/// A role's shares of dQ of one step, two at most. The first takes the registers of scores, when they are done with.
template <int role>
struct QueryGradient {
  static constexpr int shares = (query_panels + 1 - role) / consumer_warpgroups;
  static_assert(two_passes || shares <= 2);

  float (&first)[query_gradient_floats];
  float second[query_gradient_floats];

  __device__ __forceinline__ void ask_for_first(const Operands& at, const StepPlaces& step) {
    if (shares > 0) ask_for_query_gradient(at, step, 0, first);
  }
  __device__ __forceinline__ void ask_for_second(const Operands& at, const StepPlaces& step) {
    if (shares > 1) ask_for_query_gradient(at, step, 1, second);
  }
  /// Adds them to their sums, if there was such a step; `later`: groups of products asked for after them. What the next
  /// step reads from shared memory has to be read before: it would wait in one queue with the additions.
  template <int later>
  __device__ __forceinline__ void add(float* sums, bool exists) {
    if (shares > 0) {
      wait_for_products<later + (shares > 1 ? 1 : 0)>();
      pin(first);
      if (exists) add_query_gradient(sums, first);
    }
    if (shares > 1) {
      constexpr int first_of_second = consumer_warpgroups * query_gradient_share_floats;
      wait_for_products<later>();
      pin(second);
      if (exists) add_query_gradient(sums + first_of_second, second);
    }
  }
};

/// Waits until query and dO of a step are there. By a whole warp.
__device__ __forceinline__ Step await_step_and_out_gradient(Exchange& exchange, u32 step, bool first_lane) {
  exchange.out_gradient_full[step % num_stages].wait_awake(step / num_stages % 2);
  return await_step(exchange, step, first_lane);
}

/// The first warpgroup. As the second's, a template, so that it is compiled where roles are split alone.
template <int role>
__device__ __forceinline__ void make_value_gradients(const AttentionParameters& p, const ProgramArguments& mask,
                                                     const ProgramArguments& score, Exchange& exchange, u32 shared,
                                                     const Weights& weights) {
  const bool first_lane = threadIdx.x % 32 == 0;
  const Operands at(shared, role);
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
    start_at_zero(value_gradient);
    exchange.keys_full.wait_awake(item_number % 2);
    if (steps > 0) {
      float* sums = nullptr;  // of the step before
      Step step = await_step_and_out_gradient(exchange, step_number, first_lane);
      int i = 0;
#pragma unroll 1
      do {
        const u32 stage = step_number % num_stages;
        u32 words[2];
        float scores[query_step / 2];
        u32 fragments[query_step / 4];
        QueryGradient<role> query_gradient{scores};
        const bool masked = c.masked(step);
        if (masked) c.flags(words, step);
        products_fence();
        multiply_scores(scores, at.key_rows, at.places(step_number).query_rows());
        close_product_group();
        wait_for_products<0>();
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
        pack_fragments(fragments, scores);
        const bool cleaned = has_plan && masked && clean_what_either_doubts(exchange, role, stage, meetings);
        if constexpr (!two_passes) poison_if_cleaned<true>(exchange, stage, exchange.cleaned, masked, words, fragments);
        exchange.query_empty[stage].arrive();
        pin(value_gradient);
        products_fence();
        accumulate_value_gradient(value_gradient, fragments, at.places(step_number).out_gradient_columns(), i > 0);
        close_product_group();
        if constexpr (!two_passes) {
          // dQ of the step before, for which the other warpgroup has had the time of a step to write dS. The first step
          // has none before it, and what comes of this is not used.
          if (i > 0) await_score_gradients(exchange, step_number - 1);
          query_gradient.ask_for_first(at, at.places(step_number - 1));
        }
        wait_for_products<two_passes ? 0 : 1>();
        pin(value_gradient);
        pin(fragments);
        exchange.out_gradient_empty[stage].arrive();
        if constexpr (!two_passes) query_gradient.ask_for_second(at, at.places(step_number - 1));
        const Step this_step = step;
        if (i + 1 < steps) step = await_step_and_out_gradient(exchange, step_number + 1, first_lane);
        if constexpr (!two_passes) {
          query_gradient.template add</*later=*/0>(sums, i > 0);
          if (i > 0) give_back_score_gradients(exchange, step_number - 1);
          if (cleaned) have_cleaned(exchange, role, keys_to_clean);
          sums = first_query_gradient_sums(p, c.b, this_step, role);
        }
        ++step_number;
      } while (++i < steps);
      if constexpr (!two_passes) {
        float first[query_gradient_floats];
        QueryGradient<role> query_gradient{first};
        await_score_gradients(exchange, step_number - 1);
        query_gradient.ask_for_first(at, at.places(step_number - 1));
        query_gradient.ask_for_second(at, at.places(step_number - 1));
        query_gradient.template add</*later=*/0>(sums, true);
        give_back_score_gradients(exchange, step_number - 1);
      }
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
  if (has_plan) ask_for_cleaning(exchange, role, nothing_more_to_clean);
}

/// The second warpgroup.
template <int role>
__device__ __forceinline__ void make_key_gradients(const AttentionParameters& p, const ProgramArguments& mask,
                                                   const ProgramArguments& score, Exchange& exchange, u32 shared,
                                                   const Weights& weights) {
  const bool first_lane = threadIdx.x % 32 == 0;
  const Operands at(shared, role);
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
    start_at_zero(key_gradient);
    exchange.keys_full.wait_awake(item_number % 2);
    if (steps > 0) {
      Step step = await_step_and_out_gradient(exchange, step_number, first_lane);
      int i = 0;
#pragma unroll 1
      do {
        const u32 stage = step_number % num_stages;
        u32 words[2];
        float gradients[query_step / 2];
        u32 fragments[query_step / 4];
        QueryGradient<role> query_gradient{gradients};
        const bool masked = c.masked(step);
        if (masked) c.flags(words, step);
        products_fence();
        multiply_weight_gradients(gradients, at.value_rows, at.places(step_number).out_gradient_rows());
        close_product_group();
        wait_for_products<0>();
        pin(gradients);
        weights.differentiate(exchange, step_number, gradients, exchange.delta[stage] + Consumer::column());
        if (masked) hide_and_note_doubt(exchange.doubtful[meetings % 2], gradients, words);
        pack_fragments(fragments, gradients);
        const bool cleaned = has_plan && masked && clean_what_either_doubts(exchange, role, stage, meetings);
        if constexpr (!two_passes) {
          poison_if_cleaned<false>(exchange, stage, exchange.cleaned, masked, words, fragments);
          hand_over(exchange, at, step_number, fragments, false);
          // When the first warpgroup has made its dQ of the step before of keys as they are.
          if (cleaned) have_cleaned(exchange, role, keys_to_clean);
        }
        exchange.out_gradient_empty[stage].arrive();
        if constexpr (!two_passes) {
          query_gradient.ask_for_first(at, at.places(step_number));
          query_gradient.ask_for_second(at, at.places(step_number));
        }
        ask_for_key_gradient(at, at.places(step_number), i > 0, fragments, key_gradient);
        float* const sums = first_query_gradient_sums(p, c.b, step, role);
        if (i + 1 < steps) step = await_step_and_out_gradient(exchange, step_number + 1, first_lane);
        if constexpr (!two_passes) query_gradient.template add</*later=*/1>(sums, true);
        wait_for_products<0>();
        pin(key_gradient);
        if constexpr (two_passes) pin(fragments);
        exchange.query_empty[stage].arrive();
        if constexpr (!two_passes) give_back_score_gradients(exchange, step_number);
        ++step_number;
      } while (++i < steps);
    }
    exchange.keys_empty.arrive();
    store_gradient<padded_qk>(c, item, p.key_gradient, key_gradient, p.scale, head_dim_qk);
    if (has_plan && exchange.cleaned) forget_together(exchange, meetings);
    exchange.item_empty[slot].arrive();
    ++item_number;
  }
  if (has_plan) ask_for_cleaning(exchange, role, nothing_more_to_clean);
}

}  // namespace flashspan_device
