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

// What an instruction does with the values in its slots. Booleans are the integers 0 and 1; a real is the bits of a
// binary32. See mask/interpreter.cuh, and codegen/mask/program.hpp for what the operations mean.
enum class Operation : unsigned char {
  result,            // the program's value is that of slot a
  integer_constant,  // value; also a real by its bits
  append_low_bits,   // a * 2^32 + value without sign
  variable,          // number `value` of b, h, q, k, q_len, kv_len
  integer_scalar,    // number `value` of its kind
  real_scalar,
  lookup_i32,  // tensor a of rank b; the slots of its indices are six bits each of `value`, the first index lowest
  lookup_f32,
  lookup_f16,
  lookup_bf16,
  add,
  subtract,
  multiply,
  minimum,
  maximum,
  negate,
  absolute,
  floor_divide,
  modulo,
  real_add,
  real_subtract,
  real_multiply,
  real_minimum,
  real_maximum,
  real_negate,
  real_absolute,
  real_divide,
  real_tanh,
  real_exp,
  real_log,
  real_sqrt,
  to_real,
  select,  // a ? b : slot `value`
  less,
  less_equal,
  equal,
  not_equal,
  real_less,
  real_less_equal,
  real_equal,
  real_not_equal,
  logical_and,
  logical_or,
  logical_not,
  loop_begin,  // slot `to` runs over [a, b) until the body holds; instruction `value` is the loop's end
  loop_end,    // `to` is whether the body, slot b, held for a value of the loop that begins at instruction `value`
};

// One step of an interpreted program: the result goes to slot `to`.
struct Instruction {
  Operation operation;
  unsigned char to;
  unsigned char a;
  unsigned char b;
  int value;
};
constexpr int max_slots = 32;
constexpr int slot_bits = 6;
constexpr int max_instructions = 128;

struct ProgramCode {
  Instruction instructions[max_instructions];
};

// Data of one program: tensors and scalars in the order of its declarations.
struct ProgramArguments {
  LookupTensor tensors[max_lookup_tensors];
  long long integers[max_scalars];
  float reals[max_scalars];
  ProgramCode* code;  // of an interpreted program: in the workspace
};

// [batch, head, row, column] tensor with a contiguous last axis. A null pointer means "not given".
struct TensorArgument {
  void* data;
  long long stride_batch;
  long long stride_head;
  long long stride_row;
};

// One tile that a row of tiles visits.
struct TileEntry {
  int tile;
  int mask : 24;              // full_tile: no test; evaluated_tile: test by the program; >= 0: slot of a bit tile
  unsigned int unseeing : 8;  // of a partial tile, bit g: query rows group_rows g .. of the tile see nothing of it
};
constexpr int full_tile = -1;
constexpr int evaluated_tile = -2;
// Query rows that one warpgroup computes.
constexpr int group_rows = 64;

// Tile lists of one plan. Capacity of a list is the number of tiles across.
//
// Bit tiles hold the exact mask of block_m x block_n pairs, block_n <= 128, in the order of the accumulator fragments
// of mma and wgmma: bit e of word slot * 4 block_m + 4 row + quad is the pair (row, 8 (e / 2) + 2 quad + e % 2). Pairs
// outside the lengths are 0. In lists by key, rows are keys: bit e of word slot * 4 block_n + 4 key + quad is the pair
// (8 (e / 2) + 2 quad + e % 2, key), block_m <= 128. A backward has these, and both if it takes two passes.
struct TilePlanArguments {
  int* counts;         // [plan_batch, plan_heads, rows]
  TileEntry* entries;  // [plan_batch, plan_heads, rows, across], ascending by tile, `counts` of them valid
  int* order;          // [plan_batch, plan_heads, rows]: rows, most expensive first (order_of_rows() of plan/lists.cuh)
  unsigned int* bits;  // [slots, 4 block_m], by key: 4 block_n
  int bit_slots;       // capacity in tiles
  int plan_batch;      // 1 if the mask does not depend on b
  int plan_heads;      // 1 if the mask does not depend on h
};

// What the blocks of the planner hand on to one another.
struct PlanScratch {
  unsigned long long* shares;  // of the classification: WorkShares::word
  unsigned int* undecided;     // [plan_batch, plan_heads, patches, words_per_patch]: a bit per tile left to evaluate
  int* counters;               // next_item and the following ones, which stand one behind the other
  int counter_count;
  int* slots_taken;    // bit tiles asked for
  int* groups_listed;  // [2, plan_batch, plan_heads]: row groups whose lists are written, by query and by key
  int* open_tiles;  // [plan_batch, plan_heads, row groups], by query and then by key if those are planned: tiles left
                    // to evaluate, less those that have been
};

// Description of a tensor for the copy engine of sm_90, and of the box that one copy moves; made by the driver
// (cuTensorMapEncodeTiled).
struct alignas(128) TensorMap {
  unsigned long long words[16];
};

struct TensorMaps {
  TensorMap query, key, value;
  TensorMap out_gradient;  // backward
};

// Of a kernel that cuts rows of tiles into portions (attention/portions.cuh).
struct SplitArguments {
  float* partials;  // [portions, warps, PartialRows::floats]
  int* tickets;     // [rows of tiles, warps], zero before the kernel
  int warps;        // of a block, from the first on, that have rows within q_len
};

// With fewer rows of tiles than this, all lists together, a card is not filled evenly, and rows are cut into about so
// many portions: two a processor of an H200. None shorter than least_portion_tiles, unless its row is.
constexpr int portions_wanted = 2 * 132;
constexpr int least_portion_tiles = 4;

struct AttentionParameters {
  TensorArgument query, key, value, out;
  TensorArgument out_gradient, query_gradient, key_gradient, value_gradient;
  TensorArgument lse, lse_gradient;    // [B, H, Sq] fp32: stride_row is the stride of the row axis
  TensorArgument sink, sink_gradient;  // [H] fp32: stride_head alone
  // Workspace of the backward, fp32. In the hopper family rows are padded to whole tiles of queries.
  float* delta;                // [B, H, statistics_rows]: rowsum(dO * O) - dLSE
  float* shifted_lse;          // hopper: as delta, LSE in the kernel's units, +inf for rows without weights
  float* query_gradient_sums;  // hopper: dQ / scale, [B, H, tiles of queries] of backward_hopper.cuh's own order
  int statistics_rows;
  int batch, query_heads, kv_heads, q_len, kv_len;
  float scale;
  unsigned int* next_item;  // work counter of persistent kernels; null without a plan. The planner makes it 0, and so
                            // does the taking of the last item: a plan is good for any number of calls
  int section_heads;        // (batch, query head) pairs whose keys and values share the L2 cache
  TilePlanArguments by_query;  // per query tile: key tiles (forward, dQ)
  TilePlanArguments by_key;    // per key tile: query tiles (dK, dV); entries are null in a forward
  PlanScratch scratch;
  SplitArguments split;
};

// Threads of a block of the planner, and of the kernels in backward_rows.cuh.
constexpr int plan_threads = 256;
constexpr int delta_threads = 256;
constexpr int delta_lanes_per_row = 16;  // in the hopper family; a lane reads eight elements

// Blocks of the planner share its work evenly, so these are best as many as run at once: an SM of an H200, which has
// 132, holds four of up to 64 registers a thread.
constexpr int most_plan_blocks = 4 * 132;

// A block of the planner works on a patch of tiles, or on the rows of tiles that a row or a column of patches has: a
// group of rows, a warp each.
constexpr int patch_side = plan_threads / 32;
constexpr int patch_tiles = patch_side * patch_side;
constexpr int words_per_patch = patch_tiles / 32;

}  // namespace flashspan_device
