// backward_rows.cuh -- what the mma backward needs to know of each query row, before the tiles.
#pragma once

#include "attention/work.cuh"

/// delta = rowsum(dO * O) - dLSE, one warp a row. Rows that saw nothing, not even a sink, get 0. An element of O that
/// is 0 adds 0 whatever dO holds: rows that see nothing but a sink consist of them, and their dO must not show.
extern "C" __global__ void __launch_bounds__(flashspan_device::delta_threads)
    attention_backward_delta(const __grid_constant__ flashspan_device::AttentionParameters p,
                             const __grid_constant__ flashspan_device::ProgramArguments mask,
                             const __grid_constant__ flashspan_device::ProgramArguments score) {
  using namespace flashspan_device;
  (void)mask;
  (void)score;
  const long long row = static_cast<long long>(blockIdx.x) * (delta_threads / 32) + threadIdx.x / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const long long rows = static_cast<long long>(p.batch) * p.query_heads * p.q_len;
  if (row >= rows) return;
  const int q = static_cast<int>(row % p.q_len);
  const int h = static_cast<int>(row / p.q_len % p.query_heads);
  const int b = static_cast<int>(row / p.q_len / p.query_heads);
  const unsigned short* const out = matrix_of(p.out, b, h) + q * p.out.stride_row;
  const unsigned short* const gradient = matrix_of(p.out_gradient, b, h) + q * p.out_gradient.stride_row;
  float sum = 0.f;
  for (int d = lane; d < head_dim_v; d += 32) {
    const float result = widen<is_bf16>(out[d]);
    if (result != 0.f) sum += result * widen<is_bf16>(gradient[d]);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (lane != 0) return;
  if (p.lse_gradient.data != nullptr) sum -= *row_value(p.lse_gradient, b, h, q);
  p.delta[row] = *row_value(p.lse, b, h, q) == minus_infinity() ? 0.f : sum;
}
