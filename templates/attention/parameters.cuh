// parameters.cuh -- the by-value arguments of every kernel. Plain data, read by the device templates and by
// runtime/cuda alike, so that host and device cannot disagree about a layout. Strides are in elements, 64 bit.
#pragma once

namespace flashspan_device {

constexpr int max_lookup_rank = 5;
constexpr int max_lookup_tensors = 12;
constexpr int max_scalars = 12;

// A tensor that a mask or score program looks values up in.
struct LookupTensor {
  const void* data;
  long long stride[max_lookup_rank];
  int extent[max_lookup_rank];
  int unused;
};

// Data of one program: tensors and scalars in the order of its declarations.
struct ProgramArguments {
  LookupTensor tensors[max_lookup_tensors];
  long long integers[max_scalars];
  float reals[max_scalars];
};

// [batch, head, row, column] tensor with a contiguous last axis. A null pointer means "not given".
struct TensorArgument {
  void* data;
  long long stride_batch;
  long long stride_head;
  long long stride_row;
};

// Tile lists of one plan. A list holds, per (plan batch, plan head, row of tiles), the indices of the tiles to
// visit, ascending; the sign bit marks a partial tile. Capacity of a list is the number of tiles across.
struct TilePlanArguments {
  int* counts;     // [plan_batch, plan_heads, tile rows]
  int* tiles;      // [plan_batch, plan_heads, tile rows, tiles across]
  int plan_batch;  // 1 if the mask does not depend on b
  int plan_heads;  // 1 if the mask does not depend on h
};

struct AttentionParameters {
  TensorArgument query, key, value, out;
  TensorArgument out_gradient, query_gradient, key_gradient, value_gradient;
  TensorArgument lse, lse_gradient;  // [B, H, Sq] fp32: stride_row is the stride of the row axis
  float* delta;                      // [B, H, Sq] fp32 workspace of the backward: rowsum(dO * O) - dLSE
  int batch, query_heads, kv_heads, q_len, kv_len;
  float scale;
  TilePlanArguments by_query;  // per query tile: key tiles (forward, dQ)
  TilePlanArguments by_key;    // per key tile: query tiles (dK, dV)
};

// Threads of a block of plan_tiles, and of attention_backward_delta.
constexpr int plan_threads = 256;
constexpr int delta_threads = 256;

constexpr int partial_tile_bit = static_cast<int>(0x80000000u);

}  // namespace flashspan_device
