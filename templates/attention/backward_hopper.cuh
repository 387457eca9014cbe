// backward_hopper.cuh -- backward attention for sm_90a, stationary over keys: a persistent block takes a tile of 128
// keys (64 in backward_roles.cuh) and all queries that see it. Scores and their gradients are computed transposed
// (S^T = K Q^T, dP^T = V dO^T), so that P^T is the operand of dV as it comes; dS^T goes through shared memory to dK and
// dQ, whose contributions are summed in fp32 in global memory. Where dQ has a pass of its own (two_passes), this one
// makes dK and dV alone. The roles of the warpgroups follow FlashAttention-3 (arXiv 2407.08608); dQ and dK of one step
// are computed beside the scores of the next. docs/hopper-backward.md has the whole account.
//
// Three kernels: attention_backward_delta prepares what each query row needs, attention_backward_tiles does the work,
// attention_backward_query_gradient rounds the sums of dQ (backward_query_sums.cuh) or makes it
// (backward_query_pass.cuh).
#pragma once

#include "attention/backward_keys.cuh"
#include "attention/backward_roles.cuh"

namespace flashspan_device {

/// At the end of an item.
__device__ __forceinline__ void store_gradients(Exchange& exchange, const Consumer& c, const BackwardItem& item,
                                                const float (&key_gradient)[padded_qk / 2],
                                                const float (&value_gradient)[padded_v / 2], bool cleaned) {
  store_gradient<padded_qk>(c, item, c.p.key_gradient, key_gradient, c.p.scale, head_dim_qk);
  store_gradient<padded_v>(c, item, c.p.value_gradient, value_gradient, 1.f, head_dim_v);
  // Of two passes both warpgroups know of a dO that was cleaned, and of nothing else.
  if (!has_plan || !(two_passes ? exchange.cleaned_out_gradients != 0 : cleaned)) return;
  if (exchange.cleaned_out_gradients != 0) add_what_was_cleaned(c, item);
  forget_cleaning(exchange);
}

template <typename... Registers>
__device__ __forceinline__ void pin_all(Registers&... registers) {
  (pin(registers), ...);
}

/// By all consumer threads, when nothing of a step reads its query and dO any more.
__device__ __forceinline__ void give_back_stage(Exchange& exchange, const StepPlaces& step) {
  exchange.query_empty[step.stage].arrive();
  exchange.out_gradient_empty[step.stage].arrive();
}

/// Whether flags are made a step ahead: where bounds of keys are looked up, which would wait in one queue with the
/// additions to dQ. Elsewhere it is slower, and a score leaves no registers for them meanwhile.
constexpr bool flags_ahead = lowering == Lowering::column_bounds && MaskProgram::column_lookups > 0 && !has_score;

/// Consumer warpgroup `warpgroup`: 64 keys of every item.
__device__ __forceinline__ void consume(const AttentionParameters& p, const ProgramArguments& mask,
                                        const ProgramArguments& score, Exchange& exchange, u32 shared, int warpgroup) {
  const bool first_lane = threadIdx.x % 32 == 0;
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
    start_at_zero(key_gradient);
    start_at_zero(value_gradient);
    exchange.keys_full.wait(item_number % 2);
    float query_gradient[query_gradient_floats];
    // Of the step before.
    u32 weight_fragments[query_step / 4] = {};
    u32 gradient_fragments[query_step / 4] = {};
    u32 words[2];
    float* sums = nullptr;
    bool cleaned = false;  // tiles of the item
    if (steps > 0) {
      int i = 0;
      Step step = await_step(exchange, step_number, first_lane);
      bool masked_before = false;
      bool masked = false;
      const auto look_up_flags = [&] {
        masked = c.masked(step);
        if (masked) c.flags(words, step);
      };
      if (flags_ahead) look_up_flags();
      StepPlaces before = at.places(step_number - 1).ahead();
      StepPlaces now = at.places(step_number).ahead();
#pragma unroll 1
      do {
        if (!flags_ahead) look_up_flags();
        const float* const lse = exchange.lse[now.stage] + Consumer::column();
        const float* const delta = exchange.delta[now.stage] + Consumer::column();
        float scores[query_step / 2];
        float gradients[query_step / 2];
        // dK of the step before, beside the scores of this one; not used in the first, which has none before it.
        ask_for_key_gradient(at, before, i > 1, gradient_fragments, key_gradient);
        // dV of the step before is done; scores take the registers of what it was made of.
        wait_for_products<1>();
        pin_all(value_gradient, weight_fragments);
        if (i > 0) exchange.out_gradient_empty[before.stage].arrive();
        products_fence();
        multiply_scores(scores, at.key_rows, now.query_rows());
        close_product_group();
        if constexpr (two_passes) {
          // dP takes the registers of what dK is made of.
          wait_for_products<1>();
          pin(gradient_fragments);
        }
        exchange.out_gradient_full[now.stage].wait(now.parity);
        products_fence();
        multiply_weight_gradients(gradients, at.value_rows, now.out_gradient_rows());
        close_product_group();
        wait_for_products<1>();
        pin_all(scores, key_gradient);
        if (i > 0) exchange.query_empty[before.stage].arrive();
        const StepPlaces next = at.places(step_number + 1).ahead();
        make_gradients(exchange.doubtful[warpgroup], c, step, masked, lse, delta, exponent, words, scores, gradients);
        pack_fragments(weight_fragments, scores);
        pack_fragments(gradient_fragments, gradients);
        keep_hidden_out(exchange, warpgroup, step_number, now.stage, masked, cleaned, words, weight_fragments,
                        gradient_fragments);
        if constexpr (!two_passes) {
          hand_over(exchange, at, step_number, gradient_fragments, has_plan && cleaned);
          // dQ of the step before, for which the other warpgroup has had the time of a step to write its dS. The first
          // has none before it, which the barrier takes for done, and what comes of this is not used.
          await_and_ask_for_query_gradient(exchange, at, step_number - 1, before, masked_before, cleaned,
                                           query_gradient);
        }
        pin_all(value_gradient, weight_fragments);
        products_fence();
        accumulate_value_gradient(value_gradient, weight_fragments, now.out_gradient_columns(), i > 0);
        close_product_group();
        const Step this_step = step;
        masked_before = masked;
        // Before the additions: what is read from memory after them waits in one queue with them.
        if (i + 1 < steps) {
          step = await_step(exchange, step_number + 1, first_lane);
          if (flags_ahead) look_up_flags();
        }
        if constexpr (!two_passes) {
          wait_for_products<1>();
          pin(query_gradient);
          if (i > 0) give_back_score_gradients(exchange, step_number - 1);
          // Memory takes the sums over while dV, dK and the next scores are computed.
          if (i > 0) add_query_gradient(sums, query_gradient);
          sums = first_query_gradient_sums(p, c.b, this_step, warpgroup);
        }
        ++step_number;
        before = now;
        now = next;
      } while (++i < steps);
      ask_for_key_gradient(at, before, steps > 1, gradient_fragments, key_gradient);
      if constexpr (!two_passes) {
        await_and_ask_for_query_gradient(exchange, at, step_number - 1, before, masked_before, cleaned, query_gradient);
      }
      wait_for_products<0>();
      pin_all(value_gradient, key_gradient, weight_fragments, query_gradient);
      if constexpr (!two_passes) {
        give_back_score_gradients(exchange, step_number - 1);
        add_query_gradient(sums, query_gradient);
      }
      give_back_stage(exchange, before);
    }
    exchange.keys_empty.arrive();
    store_gradients(exchange, c, item, key_gradient, value_gradient, cleaned);
    exchange.item_empty[slot].arrive();
    ++item_number;
  }
  if (has_plan) ask_for_cleaning(exchange, warpgroup, nothing_more_to_clean);
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
#pragma unroll
  for (int first_column = lane * 8; first_column < padded_v; first_column += 8 * lanes_per_row) {
    if (!inside || first_column >= head_dim_v) break;
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
  constexpr int floats_per_row = two_passes ? 0 : query_gradient_tile_floats / query_step;
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
    exchange.keys_empty.init(consumer_threads);
    for (int stage = 0; stage < num_stages; ++stage) {
      exchange.query_full[stage].init(1);
      exchange.query_empty[stage].init(consumer_threads);
      exchange.out_gradient_full[stage].init(1);
      exchange.out_gradient_empty[stage].init(consumer_threads);
    }
    for (int slot = 0; slot < item_slots; ++slot) {
      exchange.item_full[slot].init(1);
      exchange.item_empty[slot].init(consumer_threads + 1);
    }
    for (int buffer = 0; buffer < score_gradient_buffers; ++buffer) {
      exchange.score_gradients_full[buffer].init(split_roles ? warpgroup_threads : consumer_threads);
      exchange.score_gradients_empty[buffer].init(consumer_threads);
    }
    for (u32& word : exchange.cleaned_keys.words) word = 0;
    exchange.cleaned = false;
    for (bool& doubtful : exchange.keys_doubtful) doubtful = false;
    exchange.cleaned_out_gradients = exchange.doubtful[0] = exchange.doubtful[1] = 0;
    for (TransferBarrier& asked : exchange.cleaning_asked) asked.init(warpgroup_threads);
    exchange.met.init(consumer_threads);
    for (int buffer = 0; buffer < weight_buffers; ++buffer) {
      exchange.weights_full[buffer].init(warpgroup_threads);
      exchange.weights_empty[buffer].init(warpgroup_threads);
    }
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
    if constexpr (split_roles) {
      const Weights weights = {reinterpret_cast<float*>(shared + weight_offset)};
      if (warpgroup == 1) {
        make_value_gradients<0>(p, mask, score, exchange, shared_address(shared), weights);
      } else {
        make_key_gradients<1>(p, mask, score, exchange, shared_address(shared), weights);
      }
    } else {
      consume(p, mask, score, exchange, shared_address(shared), warpgroup - 1);
    }
  }
}
