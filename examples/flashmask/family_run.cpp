// family_run.cpp -- launches, timing and the check of one family.
#include "examples/flashmask/family_run.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "flashspan/device.hpp"

namespace flashspan::flashmask {
namespace {

using tool::DeviceTensor;
using tool::HostArray;
using Index = std::int64_t;

constexpr Index checked_rows = 256, checked_keys = 64;

/// Values close to standard normal: the sum of four 16-bit uniforms of a SplitMix64 number (Steele et al., 2014).
HostArray normal_array(DType dtype, std::vector<Index> shape, std::uint64_t seed) {
  HostArray array = HostArray::zeros(dtype, std::move(shape));
  std::uint64_t state = seed << 32;
  const Index count = array.element_count();
  const double unit = std::sqrt(3.0) / 65536;  // four uniforms in [0, 65536) have variance 65536^2 / 3
  for (Index index = 0; index < count; ++index) {
    std::uint64_t bits = state += 0x9e3779b97f4a7c15ULL;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
    bits ^= bits >> 31;
    const auto sum =
        static_cast<double>((bits & 0xffffU) + (bits >> 16 & 0xffffU) + (bits >> 32 & 0xffffU) + (bits >> 48));
    const auto value = static_cast<float>((sum - 131070) * unit);
    switch (dtype) {
      case DType::f32:
        array.data<float>()[index] = value;
        break;
      case DType::f16:
        array.data<std::uint16_t>()[index] = tool::half_from_float(value);
        break;
      case DType::bf16:
        array.data<std::uint16_t>()[index] = tool::bfloat_from_float(value);
        break;
      case DType::i32:
        break;
    }
  }
  return array;
}

/// Elements [begin, begin + count) in binary64.
std::vector<double> widened(const HostArray& array, Index begin, Index count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (Index index = 0; index < count; ++index) {
    double& value = values[static_cast<std::size_t>(index)];
    switch (array.dtype) {
      case DType::f32:
        value = static_cast<double>(array.data<float>()[begin + index]);
        break;
      case DType::f16:
        value = static_cast<double>(tool::float_from_half(array.data<std::uint16_t>()[begin + index]));
        break;
      case DType::bf16:
        value = static_cast<double>(tool::float_from_bfloat(array.data<std::uint16_t>()[begin + index]));
        break;
      case DType::i32:
        value = array.data<std::int32_t>()[begin + index];
        break;
    }
  }
  return values;
}

/// Four units in the last place at the largest exact value: inputs are exact, so what differs is the rounding of the
/// probabilities, of the score gradients and of the result.
bool within_rounding(const Difference& difference, DType dtype) {
  double unit = 0x1p-16;  // binary32 sums of thousands of terms
  if (dtype == DType::bf16) unit = 0x1p-8;
  if (dtype == DType::f16) unit = 0x1p-11;
  return difference.error <= 4 * unit * difference.magnitude + unit * 0x1p-3;
}

}  // namespace

Result<FamilyRunner> FamilyRunner::create(Device device, DType dtype, const AttentionShape& shape) {
  auto attention = Attention::open(device);
  if (!attention) return attention.error();
  FamilyRunner runner(std::move(*attention));
  runner.shape_ = shape;
  runner.dtype_ = dtype;
  const std::vector<Index> extents{shape.batch, shape.query_heads, shape.q_len, shape.head_dim_qk};
  std::uint64_t seed = 1;
  for (auto [host, tensor] : {std::pair{&runner.host_query_, &runner.query_},
                              {&runner.host_key_, &runner.key_},
                              {&runner.host_value_, &runner.value_},
                              {&runner.host_out_gradient_, &runner.out_gradient_}}) {
    *host = normal_array(dtype, extents, seed++);
    auto placed = DeviceTensor::from_host(device, *host);
    if (!placed) return placed.error();
    *tensor = std::move(*placed);
  }
  for (DeviceTensor* tensor : {&runner.out_, &runner.query_gradient_, &runner.key_gradient_, &runner.value_gradient_}) {
    auto placed = DeviceTensor::allocate(device, dtype, extents);
    if (!placed) return placed.error();
    *tensor = std::move(*placed);
  }
  auto lse = DeviceTensor::allocate(device, DType::f32, {shape.batch, shape.query_heads, shape.q_len});
  if (!lse) return lse.error();
  runner.lse_ = std::move(*lse);
  return runner;
}

template <typename Call, typename Launch>
Result<DirectionRun> FamilyRunner::launch(Call& call, int repeats, const Launch& start) {
  auto record = attention_.prepare(call);
  if (!record) return record.error();
  const auto bytes = attention_.workspace_bytes(call);
  if (!bytes) return bytes.error();
  auto workspace = DeviceTensor::allocate(attention_.device(), DType::i32, {(*bytes + 3) / 4});
  if (!workspace) return workspace.error();
  call.workspace = workspace->view().data;
  call.workspace_bytes = *bytes;
  std::vector<double> times;
  for (int repeat = 0; repeat <= repeats; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    if (auto started = start(call); !started) return started.error();
    if (auto finished = synchronize(attention_.device()); !finished) return finished.error();
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
    if (repeat > 0) times.push_back(elapsed.count());
  }
  std::sort(times.begin(), times.end());
  return DirectionRun{std::move(*record), times.empty() ? 0 : times[times.size() / 2]};
}

Result<FamilyRun> FamilyRunner::run(const FamilyMask& family, int repeats, std::int64_t number) {
  auto host_mask = family.mask(shape_);
  if (!host_mask) return host_mask.error();
  auto mask = host_mask->to(attention_.device());
  if (!mask) return mask.error();

  ForwardCall forward;
  BackwardCall backward;
  forward.query = backward.query = query_.view();
  forward.key = backward.key = key_.view();
  forward.value = backward.value = value_.view();
  forward.out = backward.out = out_.view();
  forward.lse = backward.lse = lse_.view();
  forward.mask = backward.mask = &*mask;
  backward.out_gradient = out_gradient_.view();
  backward.query_gradient = query_gradient_.view();
  backward.key_gradient = key_gradient_.view();
  backward.value_gradient = value_gradient_.view();

  FamilyRun result;
  auto forward_run = launch(forward, repeats, [this](const ForwardCall& call) { return attention_.forward(call); });
  if (!forward_run) return forward_run.error();
  result.forward = std::move(*forward_run);
  auto backward_run = launch(backward, repeats, [this](const BackwardCall& call) { return attention_.backward(call); });
  if (!backward_run) return backward_run.error();
  result.backward = std::move(*backward_run);
  if (auto compared = compare(family, number, result); !compared) return compared.error();
  return result;
}

Result<void> FamilyRunner::compare(const FamilyMask& family, std::int64_t number, FamilyRun& run) const {
  const Index batch = number % shape_.batch, head = number % shape_.query_heads;
  const Index rows = shape_.q_len, count = rows * shape_.head_dim_qk;
  const Index first = (batch * shape_.query_heads + head) * count;
  HeadTensors tensors;
  tensors.length = rows;
  tensors.dim = shape_.head_dim_qk;
  tensors.scale = 1 / std::sqrt(static_cast<double>(shape_.head_dim_qk));
  tensors.query = widened(host_query_, first, count);
  tensors.key = widened(host_key_, first, count);
  tensors.value = widened(host_value_, first, count);
  tensors.out_gradient = widened(host_out_gradient_, first, count);

  HeadResults results;
  for (auto [source, target] : {std::pair{&out_, &results.out},
                                {&query_gradient_, &results.query_gradient},
                                {&key_gradient_, &results.key_gradient},
                                {&value_gradient_, &results.value_gradient}}) {
    const auto array = source->to_host();
    if (!array) return array.error();
    *target = widened(*array, first, count);
  }
  const auto lse = lse_.to_host();
  if (!lse) return lse.error();
  results.lse = widened(*lse, first / shape_.head_dim_qk, rows);

  const auto visible = [&](Index q, Index k) { return family.visible(batch, head, q, k); };
  Differences& found = run.differences;
  found = compare_with_reference(tensors, results, visible, std::max<Index>(1, rows / checked_rows),
                                 std::max<Index>(1, rows / checked_keys));
  run.accurate = within_rounding(found.lse, DType::f32);
  for (const Difference* difference : {&found.out, &found.query_gradient, &found.key_gradient, &found.value_gradient}) {
    run.accurate = run.accurate && within_rounding(*difference, dtype_);
  }
  return {};
}

}  // namespace flashspan::flashmask
