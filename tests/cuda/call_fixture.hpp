// call_fixture.hpp -- a small attention call with programs and made-up addresses, for tests of what gets launched.
#pragma once

#include <cstdint>

#include "codegen/kernel/kernel_spec.hpp"
#include "codegen/mask/program.hpp"
#include "runtime/backend/backend.hpp"
#include "tests/cuda/made_up_address.hpp"

namespace flashspan::cuda {

/// k <= q.
inline mask::Program causal_program() {
  mask::Program program;
  program.set_root(
      program.binary(mask::Op::less_equal, program.variable(mask::Variable::k), program.variable(mask::Variable::q)));
  return program;
}

/// doc[<variable>, q] == doc[<variable>, k] for a variable of b, h.
inline mask::Program document_program(mask::Variable variable) {
  mask::Program program({}, {{"doc", DType::i32, 2}});
  const auto lookup = [&](mask::Variable index) {
    mask::Node node;
    node.op = mask::Op::lookup;
    node.operands = {program.variable(variable), program.variable(index)};
    return program.add(node);
  };
  program.set_root(program.binary(mask::Op::equal, lookup(mask::Variable::q), lookup(mask::Variable::k)));
  return program;
}

/// Batch 2, 6 query heads over 3 key heads, 100 queries, 200 keys, head dims 64 and 32, tiles of 64 x 128.
struct SmallCall {
  explicit SmallCall(Direction direction, mask::Program mask_program = causal_program())
      : program(std::move(mask_program)) {
    spec.direction = direction;
    spec.target = {DeviceKind::cuda, {90, 0}};
    spec.dtype = DType::bf16;
    spec.head_dim_qk = 64;
    spec.head_dim_v = 32;
    spec.tile = {64, 128, 4, 1};
    bindings.tensors.resize(program.tensors().size());
    bindings.scalars.resize(program.scalars().size());
    set_shape({2, 6, 3, 100, 200, 64, 32});
    args.mask_program = &program;
    args.mask_bindings = &bindings;
    args.workspace = made_up_address(0x700000000000);
    args.workspace_bytes = std::int64_t{1} << 40;
    args.stream.handle = made_up_address(0x5eed);
  }
  SmallCall(const SmallCall&) = delete;
  SmallCall& operator=(const SmallCall&) = delete;

  void set_shape(const AttentionShape& shape) {
    args.shape = shape;
    const Device device{DeviceKind::cuda, 0};
    std::uintptr_t address = 0x10000;
    const auto view = [&](DType dtype, std::initializer_list<std::int64_t> extents) {
      return TensorView::contiguous(made_up_address(address += 0x1000), dtype, extents, device);
    };
    const auto [batch, query_heads, kv_heads, q_len, kv_len, dim, dim_v] = shape;
    args.query = view(spec.dtype, {batch, query_heads, q_len, dim});
    args.key = view(spec.dtype, {batch, kv_heads, kv_len, dim});
    args.value = view(spec.dtype, {batch, kv_heads, kv_len, dim_v});
    args.out = view(spec.dtype, {batch, query_heads, q_len, dim_v});
    args.lse = view(DType::f32, {batch, query_heads, q_len});
    if (spec.direction == Direction::forward) return;
    args.out_gradient = view(spec.dtype, {batch, query_heads, q_len, dim_v});
    args.query_gradient = view(spec.dtype, {batch, query_heads, q_len, dim});
    args.key_gradient = view(spec.dtype, {batch, kv_heads, kv_len, dim});
    args.value_gradient = view(spec.dtype, {batch, kv_heads, kv_len, dim_v});
  }

  mask::Program program;
  mask::Bindings bindings;
  kernel::KernelSpec spec;
  backend::LaunchArgs args;
};

}  // namespace flashspan::cuda
