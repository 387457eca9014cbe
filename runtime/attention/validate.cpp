// validate.cpp -- the rules for the tensors and numbers of a call, in the order a caller can best act on.
#include "runtime/attention/validate.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "codegen/kernel/tile_config.hpp"
#include "runtime/attention/score_gradients.hpp"
#include "runtime/attention/tensor_rule.hpp"
#include "runtime/attention/validate_program.hpp"

namespace flashspan::attention {

CallTensors::CallTensors(const AttentionCall& call) {
  add({"query", &call.query});
  add({"key", &call.key});
  add({"value", &call.value});
  add({"sink", &call.sink, Role::read, /*optional=*/true});
  switch (call.direction) {
    case Direction::forward:
      add({"out", &call.out, Role::written});
      add({"lse", &call.lse, Role::written, /*optional=*/true});
      return;
    case Direction::backward:
      add({"out", &call.out});
      add({"lse", &call.lse});
      add({"out_gradient", &call.out_gradient});
      add({"lse_gradient", &call.lse_gradient, Role::read, /*optional=*/true});
      add({"query_gradient", &call.query_gradient, Role::written});
      add({"key_gradient", &call.key_gradient, Role::written});
      add({"value_gradient", &call.value_gradient, Role::written});
      add({"sink_gradient", &call.sink_gradient, Role::written, /*optional=*/true});
      return;
  }
}

namespace {

using namespace std::string_view_literals;

bool of_rows(const CallTensor& tensor) { return tensor.argument.starts_with("lse"sv); }
bool of_heads(const CallTensor& tensor) { return tensor.argument.starts_with("sink"sv); }
/// f32 in every call, and without the axis of head dims.
bool holds_statistics(const CallTensor& tensor) { return of_rows(tensor) || of_heads(tensor); }
int rank_of(const CallTensor& tensor) { return of_heads(tensor) ? 1 : of_rows(tensor) ? 3 : 4; }
bool absent(const CallTensor& tensor) { return !tensor.view->given() && tensor.view->rank == 0; }
bool skipped(const CallTensor& tensor) { return tensor.optional && absent(tensor); }

const char* layout(const CallTensor& tensor) {
  const std::string_view name = tensor.argument;
  if (of_rows(tensor)) return "a tensor f32[B, Hq, Sq]";
  if (of_heads(tensor)) return "a tensor f32[Hq]";
  if (name.starts_with("query")) return "a tensor [B, Hq, Sq, D]";
  if (name.starts_with("key")) return "a tensor [B, Hkv, Sk, D]";
  if (name.starts_with("value")) return "a tensor [B, Hkv, Sk, Dv]";
  return "a tensor [B, Hq, Sq, Dv]";
}

Result<void> check_ranks(const CallTensors& tensors) {
  for (const CallTensor& tensor : tensors.all()) {
    if (skipped(tensor)) continue;
    if (absent(tensor)) return bad_argument(std::string(tensor.argument), "no tensor", layout(tensor));
    if (tensor.view->rank != rank_of(tensor)) {
      return bad_argument(std::string(tensor.argument), to_string(*tensor.view), layout(tensor));
    }
    if (auto given = check_given(tensor.argument, *tensor.view, layout(tensor)); !given) return given.error();
  }
  return {};
}

bool dtype_served(DType dtype, DeviceKind kind) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16:
      return true;
    case DType::f32:
      return kind == DeviceKind::cpu;
    case DType::i32:
      return false;
  }
  return false;
}

const char* served_dtypes(DeviceKind kind) {
  return kind == DeviceKind::cpu ? "f32, f16 or bf16" : "f16 or bf16 (f32 on the CPU only)";
}

Result<void> check_dtypes(const AttentionCall& call, const CallTensors& tensors, DeviceKind kind) {
  const DType dtype = call.query.dtype;
  std::string names;
  std::string got;
  bool equal = true;
  for (const CallTensor& tensor : tensors.all()) {
    if (skipped(tensor)) continue;
    if (holds_statistics(tensor)) {
      if (tensor.view->dtype != DType::f32)
        return bad_argument(std::string(tensor.argument), to_string(*tensor.view), layout(tensor));
      continue;
    }
    equal = equal && tensor.view->dtype == dtype;
  }
  if (equal && dtype_served(dtype, kind)) return {};
  for (const CallTensor& tensor : tensors.all()) {
    if (holds_statistics(tensor)) continue;
    names += (names.empty() ? "" : ", ") + std::string(tensor.argument);
    got += (got.empty() ? "" : ", ") + std::string(to_string(tensor.view->dtype));
  }
  return bad_argument(names, got, std::string("one dtype for all of them: ") + served_dtypes(kind));
}

Result<void> check_devices(const CallTensors& tensors, Device device) {
  for (const CallTensor& tensor : tensors.all()) {
    if (skipped(tensor) || tensor.view->device == device) continue;
    return bad_argument(std::string(tensor.argument), "a tensor on " + to_string(tensor.view->device),
                        "tensors on " + to_string(device) + ", the device of this Attention");
  }
  return {};
}

/// first * second * third, or the largest number of 64 bits.
std::int64_t product(std::int64_t first, std::int64_t second, std::int64_t third) {
  std::int64_t result = 0;
  const bool overflows =
      __builtin_mul_overflow(first, second, &result) || __builtin_mul_overflow(result, third, &result);
  return overflows ? std::numeric_limits<std::int64_t>::max() : result;
}

Error too_large(const char* argument, const std::string& what, std::int64_t largest) {
  return Error{ErrorCode::unsupported, argument, "sizes with more than " + std::to_string(largest) + " " + what,
               "less than that: split the batch or the heads over several calls", ""};
}

/// Keeps the bytes of tensors and workspaces within 64 bits. A workspace has fewer than eight parts of up to 2^10 bytes
/// (256 columns of fp32) a row of a padded length, and two lists of 4 bytes a pair of tiles.
Result<void> check_products(const AttentionShape& shape) {
  constexpr std::int64_t most_rows = std::int64_t{1} << 48;
  constexpr std::int64_t most_tile_pairs = std::int64_t{1} << 58;
  constexpr std::int64_t smallest_tile = 16;
  constexpr std::int64_t largest_tile = 256;
  const auto [batch, query_heads, kv_heads, q_len, kv_len, head_dim_qk, head_dim_v] = shape;
  if (product(batch, query_heads, q_len + largest_tile) > most_rows) {
    return too_large("query", "rows of all batches and heads", most_rows);
  }
  if (product(batch, kv_heads, kv_len + largest_tile) > most_rows) {
    return too_large("key", "rows of all batches and heads", most_rows);
  }
  const std::int64_t tile_pairs = (q_len / smallest_tile + 1) * (kv_len / smallest_tile + 1);
  if (product(batch, query_heads, tile_pairs) > most_tile_pairs) {
    return too_large("query, key", "pairs of tiles of all batches and heads", most_tile_pairs);
  }
  return {};
}

Result<AttentionShape> read_shape(const AttentionCall& call) {
  AttentionShape shape;
  shape.batch = call.query.shape[0];
  shape.query_heads = call.query.shape[1];
  shape.q_len = call.query.shape[2];
  shape.head_dim_qk = call.query.shape[3];
  shape.kv_heads = call.key.shape[1];
  shape.kv_len = call.key.shape[2];
  shape.head_dim_v = call.value.shape[3];
  if (auto legal = check_shape(shape); !legal) return legal.error();
  if (auto fits = check_products(shape); !fits) return fits.error();
  return shape;
}

Result<void> check_extents(const CallTensor& tensor, const AttentionShape& shape) {
  const std::string_view name = tensor.argument;
  const bool of_keys = name.starts_with("key"sv) || name.starts_with("value"sv);
  const bool of_scores = name.starts_with("key"sv) || name.starts_with("query"sv);
  const std::array<std::int64_t, 4> expected{shape.batch, of_keys ? shape.kv_heads : shape.query_heads,
                                             of_keys ? shape.kv_len : shape.q_len,
                                             of_scores ? shape.head_dim_qk : shape.head_dim_v};
  const std::size_t first = of_heads(tensor) ? 1 : 0;  // of the axes that the tensor has
  const auto rank = static_cast<std::size_t>(tensor.view->rank);
  bool equal = true;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    equal = equal && tensor.view->shape[axis] == expected[first + axis];
  }
  if (equal) return {};
  const std::array<const char*, 4> names{"B", of_keys ? "Hkv" : "Hq", of_keys ? "Sk" : "Sq", of_scores ? "D" : "Dv"};
  TensorRule rule{std::string(tensor.argument), tensor.view->dtype, {}};
  for (std::size_t axis = first; axis < first + rank; ++axis) rule.axes.push_back(exactly(names[axis], expected[axis]));
  return check_tensor(rule, *tensor.view);
}

Result<void> check_head_dim(const char* argument, std::int64_t head_dim, DeviceKind kind) {
  const bool served = kind == DeviceKind::cpu
                          ? head_dim >= 1 && head_dim <= kernel::largest_head_dim
                          : head_dim >= kernel::smallest_head_dim && head_dim <= kernel::largest_head_dim &&
                                head_dim % kernel::head_dim_step == 0;
  if (served) return {};
  const std::string largest = std::to_string(kernel::largest_head_dim);
  const std::string takes = kind == DeviceKind::cpu
                                ? "head dims of 1 to " + largest + " on the CPU"
                                : "head dims of " + std::to_string(kernel::smallest_head_dim) + " to " + largest +
                                      " in steps of " + std::to_string(kernel::head_dim_step) + " on CUDA";
  return Error{ErrorCode::unsupported, argument, "head dim " + std::to_string(head_dim), takes, ""};
}

Result<void> check_memory_layout(const CallTensor& tensor) {
  const TensorView& view = *tensor.view;
  if (auto memory = check_memory(tensor.argument, view); !memory) return memory.error();
  if (!holds_statistics(tensor) && view.shape[3] > 1 && view.strides[3] != 1) {
    return bad_argument(std::string(tensor.argument), "stride " + std::to_string(view.strides[3]) + " on the last axis",
                        "a contiguous last axis (stride 1); copy the tensor first");
  }
  if (tensor.role == Role::read || view.element_count() == 0) return {};
  for (int axis = 0; axis < view.rank; ++axis) {
    const auto index = static_cast<std::size_t>(axis);
    if (view.shape[index] > 1 && view.strides[index] == 0) {
      return bad_argument(std::string(tensor.argument), "stride 0 on axis " + std::to_string(axis),
                          "a result whose elements are all apart, since it is written to");
    }
  }
  return {};
}

Result<void> check_sink(const AttentionCall& call) {
  if (!call.sink_gradient.given() || call.sink.given()) return {};
  return bad_argument("sink", "no tensor", "a tensor f32[Hq], the forward's, since sink_gradient is asked for");
}

Result<void> check_scale(const std::optional<float>& scale) {
  if (!scale || std::isfinite(*scale)) return {};
  return bad_argument("scale", std::to_string(*scale), "a finite number");
}

}  // namespace

Result<AttentionShape> validate(const AttentionCall& call, const backend::DeviceFacts& facts) {
  const CallTensors tensors(call);
  const DeviceKind kind = facts.device.kind;
  if (auto ranks = check_ranks(tensors); !ranks) return ranks.error();
  if (auto dtypes = check_dtypes(call, tensors, kind); !dtypes) return dtypes.error();
  if (auto devices = check_devices(tensors, facts.device); !devices) return devices.error();
  auto shape = read_shape(call);
  if (!shape) return shape.error();
  if (auto head_dim = check_head_dim("query", shape->head_dim_qk, kind); !head_dim) return head_dim.error();
  if (auto head_dim = check_head_dim("value", shape->head_dim_v, kind); !head_dim) return head_dim.error();
  for (const CallTensor& tensor : tensors.all()) {
    if (skipped(tensor)) continue;
    if (auto extents = check_extents(tensor, *shape); !extents) return extents.error();
    if (auto memory = check_memory_layout(tensor); !memory) return memory.error();
  }
  if (auto sink = check_sink(call); !sink) return sink.error();
  if (auto scale = check_scale(call.scale); !scale) return scale.error();
  if (auto mask = check_mask(*call.mask, *shape, facts.device); !mask) return mask.error();
  if (call.score != nullptr) {
    if (auto score = check_program("score", *call.score, *shape, facts.device); !score) return score.error();
  }
  if (auto gradients = check_score_gradients(call, facts.device); !gradients) return gradients.error();
  return shape;
}

Result<void> check_dtype_and_head_dims(DType dtype, const AttentionShape& shape, DeviceKind kind) {
  if (!dtype_served(dtype, kind)) return bad_argument("dtype", to_string(dtype), served_dtypes(kind));
  if (auto head_dim = check_head_dim("query", shape.head_dim_qk, kind); !head_dim) return head_dim;
  return check_head_dim("value", shape.head_dim_v, kind);
}

}  // namespace flashspan::attention
