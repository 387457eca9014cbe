// backward_sink.cuh -- gradient of the sink logits, from what the delta kernel of either family has left.
#pragma once

#include "attention/work.cuh"

/// Gradient of the sinks: the sum over batch and queries of -weight * delta, where weight = exp(sink - lse). One block
/// a head; every thread adds up its rows, then the block its threads, both in a fixed order.
extern "C" __global__ void __launch_bounds__(flashspan_device::delta_threads)
    attention_backward_sink(const __grid_constant__ flashspan_device::AttentionParameters p,
                            const __grid_constant__ flashspan_device::ProgramArguments mask,
                            const __grid_constant__ flashspan_device::ProgramArguments score) {
  using namespace flashspan_device;
  (void)mask;
  (void)score;
  constexpr int warps = delta_threads / 32;
  __shared__ float warp_sums[warps];
  const int h = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const float sink = *row_value(p.sink, 0, h, 0);
  // A sink of -inf is none. Where lse is the sink, +inf too, the sink has all the weight.
  const int batches = sink == minus_infinity() ? 0 : p.batch;
  float sum = 0.f;
  for (int b = 0; b < batches; ++b) {
    const float* const delta = p.delta + (static_cast<long long>(b) * p.query_heads + h) * p.statistics_rows;
#pragma unroll 4
    for (int q = thread; q < p.q_len; q += delta_threads) {
      const float lse = *row_value(p.lse, b, h, q);
      const float weight = sink == lse ? 1.f : expf(sink - lse);
      sum -= weight * delta[q];
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (thread % 32 == 0) warp_sums[thread / 32] = sum;
  __syncthreads();
  if (thread != 0) return;
  float total = 0.f;
  for (int warp = 0; warp < warps; ++warp) total += warp_sums[warp];
  *row_value(p.sink_gradient, 0, h, 0) = total;
}
