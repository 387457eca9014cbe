// backward_query_sums.cuh -- the last kernel of a hopper backward that sums dQ in global memory.
#pragma once

#include "attention/backward_hopper.cuh"

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
#pragma unroll 1
  for (int share = warpgroup; share < query_gradient_shares; share += consumer_warpgroups) {
    const int first_sum = share * query_gradient_share_floats + thread * 4;
    const float* const sums = query_gradient_sums(p, b, h, query_tile) + first_sum;
    float gradient[query_gradient_floats];
#pragma unroll
    for (int i = 0; i < query_gradient_share_floats; i += 4 * warpgroup_threads) {
      const FourFloats four = *reinterpret_cast<const FourFloats*>(sums + i);
#pragma unroll
      for (int j = 0; j < 4; ++j) gradient[i / warpgroup_threads + j] = four.of[j];
    }
    const int first_column = split_by_column ? share * query_gradient_columns : 0;
    const int first_q =
        query_tile * block_m + (split_by_query ? share * 64 : 0) + thread / 32 * 16 + FragmentPlace::of_lane().row;
    unsigned short* const matrix = matrix_of(p.query_gradient, b, h) + first_column;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const long long q = first_q + 8 * half;
      store_row<query_gradient_columns>(matrix + q * p.query_gradient.stride_row, gradient, half, p.scale, q < p.q_len,
                                        head_dim_qk - first_column);
    }
  }
}
