// first_attention.cpp -- attention inside documents on the CPU: every query sees the keys of its document up to itself.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "flashspan/attention.hpp"

using namespace flashspan;

int main() {
  constexpr std::int64_t length = 6, dim = 16;
  std::vector<float> query(length * dim, 1), key(query), value(query), out(query);
  for (int k = 0; k < length; ++k) std::fill_n(&value[k * dim], dim, static_cast<float>(k));  // key k holds k
  std::vector<std::int32_t> doc{0, 0, 0, 1, 1, 1};

  auto attention = Attention::open(Device{DeviceKind::cpu});
  auto mask =
      Mask::parse("(doc[q] == doc[k]) & (q >= k)", {{"doc", TensorView::contiguous(doc.data(), DType::i32, {length})}});
  if (!attention || !mask) return 1;

  ForwardCall call;  // tensors are [batch, heads, sequence, head dim]
  call.query = TensorView::contiguous(query.data(), DType::f32, {1, 1, length, dim});
  call.key = TensorView::contiguous(key.data(), DType::f32, {1, 1, length, dim});
  call.value = TensorView::contiguous(value.data(), DType::f32, {1, 1, length, dim});
  call.out = TensorView::contiguous(out.data(), DType::f32, {1, 1, length, dim});
  call.mask = &*mask;
  std::vector<std::byte> workspace(attention->workspace_bytes(call).value());
  call.workspace = workspace.data();
  call.workspace_bytes = static_cast<std::int64_t>(workspace.size());
  if (auto done = attention->forward(call); !done) {
    std::printf("%s\n", done.error().message().c_str());
    return 1;
  }
  for (std::int64_t q = 0; q < length; ++q) std::printf("query %d: %.2f\n", static_cast<int>(q), out[q * dim]);
}
