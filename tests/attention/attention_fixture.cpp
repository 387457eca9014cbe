// attention_fixture.cpp -- runs a described call on a device and on the oracle.
#include "attention/attention_fixture.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

namespace flashspan::tests {
namespace {

/// The first device of the kind, or nothing.
std::optional<Device> find_device(DeviceKind kind) {
  static const std::vector<Device> devices = available_devices();
  for (const Device& device : devices) {
    if (device.kind == kind) return device;
  }
  return std::nullopt;
}

std::vector<Place> places_with(const std::vector<DType>& cpu, const std::vector<DType>& cuda) {
  std::vector<Place> all;
  const auto add = [&all](DeviceKind kind, const std::vector<DType>& dtypes) {
    std::transform(dtypes.begin(), dtypes.end(), std::back_inserter(all),
                   [kind](DType dtype) { return Place{kind, dtype}; });
  };
#ifdef FLASHSPAN_TESTS_EXPECT_CPU
  add(DeviceKind::cpu, cpu);
#else
  (void)cpu;
#endif
  add(DeviceKind::cuda, cuda);
  return all;
}

/// [1, H, 1, 1] as the [H] of calls.
TensorView of_heads(const PlacedTensor& tensor) {
  TensorView view = tensor.view();
  if (!view.given()) return view;
  view.rank = 1;
  view.shape = {view.shape[1]};
  view.strides = {view.strides[1]};
  return view;
}

Index elements(const LookedUpTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), Index{1}, std::multiplies<>());
}

oracle::Tensor shape_like(Index batch, Index heads, Index rows, Index columns) {
  return oracle::Tensor(batch, heads, rows, columns);
}

}  // namespace

std::string name_of(const testing::TestParamInfo<Place>& place) {
  return std::string(place.param.kind == DeviceKind::cpu ? "cpu_" : "cuda_") + to_string(place.param.dtype) +
         (place.param.deterministic ? "_deterministic" : "");
}

std::vector<Place> places() {
  std::vector<Place> all = places_with({DType::f32, DType::bf16}, {DType::bf16});
  all.push_back({DeviceKind::cuda, DType::bf16, /*deterministic=*/true});
  return all;
}

std::vector<Place> places_of_every_dtype() {
  return places_with({DType::f32, DType::f16, DType::bf16}, {DType::f16, DType::bf16});
}

AttentionShape shape_of(Index batch, Index query_heads, Index kv_heads, Index q_len, Index kv_len, Index head_dim_qk,
                        Index head_dim_v) {
  return {batch, query_heads, kv_heads, q_len, kv_len, head_dim_qk, head_dim_v == 0 ? head_dim_qk : head_dim_v};
}

PlacedCall::PlacedCall(const Scenario& scenario, const Inputs& inputs, Device device, DType dtype)
    : scenario_(scenario), device_(device), mask_(scenario.mask), score_(scenario.score) {
  if (device.kind == DeviceKind::cuda) {
    if (mask_) mask_ = expect_value(mask_->to(device));
    if (score_) score_ = expect_value(score_->to(device));
  }
  const auto given = [&](const oracle::Tensor& values, const Arrangement& arrangement) {
    return PlacedTensor(values, dtype, device, arrangement);
  };
  const auto result = [&](const oracle::Tensor& shape, const Arrangement& arrangement) {
    return PlacedTensor::poisoned(shape, dtype, device, arrangement);
  };
  query_ = given(inputs.query, scenario.query);
  key_ = given(inputs.key, scenario.key);
  value_ = given(inputs.value, scenario.value);
  const AttentionShape& s = scenario.shape;
  const oracle::Tensor out = shape_like(s.batch, s.query_heads, s.q_len, s.head_dim_v);
  const oracle::Tensor lse = shape_like(s.batch, s.query_heads, s.q_len, 1);
  out_ = result(out, scenario.out);
  if (scenario.with_lse) lse_ = PlacedTensor::poisoned(lse, DType::f32, device, scenario.statistics, true);
  if (scenario.with_sink) sink_ = PlacedTensor(inputs.sink, DType::f32, device, scenario.sink);
  if (!scenario.backward) return;
  out_gradient_ = given(inputs.out_gradient, scenario.out_gradient);
  if (scenario.lse_gradient) {
    lse_gradient_ = PlacedTensor(inputs.lse_gradient, DType::f32, device, scenario.statistics, true);
  }
  query_gradient_ = result(inputs.query, scenario.query);
  key_gradient_ = result(inputs.key, scenario.key);
  value_gradient_ = result(inputs.value, scenario.value);
  for (const LookedUpTensor& tensor : scenario.score_gradients) {
    const Index columns = tensor.shape.back();
    score_gradients_.push_back(
        PlacedTensor::poisoned(shape_like(1, 1, columns == 0 ? 0 : elements(tensor) / columns, columns), DType::f32,
                               device, scenario.score_gradient));
  }
  if (!scenario.with_sink || !scenario.with_sink_gradient) return;
  sink_gradient_ = PlacedTensor::poisoned(inputs.sink, DType::f32, device, scenario.sink);
}

TensorView PlacedCall::sink() const {
  TensorView view = of_heads(sink_);
  if (scenario_.expanded_sink) view.strides = {};
  return view;
}

std::vector<NamedTensor> PlacedCall::score_gradients() const {
  std::vector<NamedTensor> results;
  for (std::size_t i = 0; i < score_gradients_.size(); ++i) {
    const LookedUpTensor& tensor = scenario_.score_gradients[i];
    TensorView view = score_gradients_[i].view();
    std::int64_t stride = view.strides[2];  // of the rows
    view.rank = static_cast<int>(tensor.shape.size());
    view.shape = {};
    view.strides = {};
    for (std::size_t axis = tensor.shape.size(); axis-- > 0;) {
      const bool last = axis + 1 == tensor.shape.size();
      view.shape[axis] = tensor.shape[axis];
      view.strides[axis] = last ? 1 : stride;
      if (!last) stride *= tensor.shape[axis];
    }
    results.push_back({tensor.name, view});
  }
  return results;
}

ForwardCall PlacedCall::forward_call() const {
  ForwardCall call;
  call.query = query_.view();
  call.key = key_.view();
  call.value = value_.view();
  call.sink = sink();
  call.out = out_.view();
  call.lse = lse_.view();
  call.mask = mask_ ? &*mask_ : nullptr;
  call.score = score_ ? &*score_ : nullptr;
  call.scale = scenario_.scale;
  call.tile = scenario_.forward_tile;
  return call;
}

BackwardCall PlacedCall::backward_call() const {
  BackwardCall call;
  call.deterministic = scenario_.deterministic;
  call.tile = scenario_.backward_tile;
  call.query = query_.view();
  call.key = key_.view();
  call.value = value_.view();
  call.out = out_.view();
  call.lse = lse_.view();
  call.out_gradient = out_gradient_.view();
  call.lse_gradient = lse_gradient_.view();
  call.query_gradient = query_gradient_.view();
  call.key_gradient = key_gradient_.view();
  call.value_gradient = value_gradient_.view();
  if (sink_gradient_.view().given()) call.sink = sink();
  call.sink_gradient = of_heads(sink_gradient_);
  call.score_gradients = score_gradients();
  call.mask = mask_ ? &*mask_ : nullptr;
  call.score = score_ ? &*score_ : nullptr;
  call.scale = scenario_.scale;
  return call;
}

Result<void> PlacedCall::run(Attention& attention, Stream stream) {
  const auto run_one = [&](auto call, auto method, const char* name) -> Result<void> {
    const auto bytes = attention.workspace_bytes(call);
    if (!bytes) return bytes.error();
    const PoisonedWorkspace workspace(device_, *bytes);
    call.workspace = workspace.data();
    call.workspace_bytes = workspace.bytes();
    call.stream = stream;
    if (auto done = (attention.*method)(call); !done) return done.error();
    if (auto waited = synchronize(device_, stream); !waited) return waited.error();
    EXPECT_TRUE(workspace.guard_untouched()) << name << " wrote behind its workspace of " << *bytes << " bytes";
    return {};
  };
  if (auto done = run_one(forward_call(), &Attention::forward, "forward"); !done) return done.error();
  if (!scenario_.backward) return {};
  return run_one(backward_call(), &Attention::backward, "backward");
}

bool PlacedCall::surroundings_untouched() const {
  std::vector<const PlacedTensor*> written{&out_,          &lse_, &query_gradient_, &key_gradient_, &value_gradient_,
                                           &sink_gradient_};
  for (const PlacedTensor& gradient : score_gradients_) written.push_back(&gradient);
  return std::all_of(written.begin(), written.end(),
                     [](const PlacedTensor* t) { return !t->view().given() || t->surroundings_untouched(); });
}

oracle::Answer PlacedCall::read() const {
  EXPECT_TRUE(surroundings_untouched()) << "memory between or around the rows of a result was written";
  oracle::Answer answer;
  answer.out = out_.read();
  if (scenario_.with_lse) answer.lse = lse_.read();
  if (scenario_.backward) {
    answer.query_gradient = query_gradient_.read();
    answer.key_gradient = key_gradient_.read();
    answer.value_gradient = value_gradient_.read();
    if (sink_gradient_.view().given()) answer.sink_gradient = sink_gradient_.read();
    for (const PlacedTensor& placed : score_gradients_) {
      oracle::Tensor gradient = placed.read();
      gradient.columns *= gradient.rows;  // the oracle's are one row
      gradient.rows = 1;
      answer.score_gradients.push_back(std::move(gradient));
    }
  }
  return answer;
}

void AttentionTest::SetUp() {
  const std::optional<Device> found = find_device(GetParam().kind);
  if (!found && GetParam().kind == DeviceKind::cuda)
    GTEST_SKIP() << "no CUDA device of compute capability 8.0 or later";
  ASSERT_TRUE(found) << "the CPU back end was built but does not open";
  device_ = *found;
}

Attention& AttentionTest::attention() const {
  static std::map<DeviceKind, Attention> opened;
  const auto found = opened.find(device_.kind);
  if (found != opened.end()) return found->second;
  AttentionOptions options;
  options.log = [](LogLevel, std::string_view) {};
  // Kernels that an earlier test has compiled, of this build or of another: LLVM is most of the suite's work. What our
  // code emits is part of a kernel's key.
  const char* const kernels = std::getenv("FLASHSPAN_TESTS_CACHE_DIR");
  options.cache_dir = kernels != nullptr ? kernels : "";
  options.tuning_file = "";
  return opened.emplace(device_.kind, expect_value(Attention::open(device_, options))).first->second;
}

Inputs AttentionTest::random_inputs(const AttentionShape& shape, std::uint64_t seed, double magnitude) const {
  const auto random = [&](Index heads, Index rows, Index columns, std::uint64_t stream, double size) {
    return oracle::random_tensor(shape.batch, heads, rows, columns, format(), seed * 16 + stream, size);
  };
  Inputs inputs;
  inputs.query = random(shape.query_heads, shape.q_len, shape.head_dim_qk, 1, magnitude);
  inputs.key = random(shape.kv_heads, shape.kv_len, shape.head_dim_qk, 2, magnitude);
  inputs.value = random(shape.kv_heads, shape.kv_len, shape.head_dim_v, 3, magnitude);
  inputs.out_gradient = random(shape.query_heads, shape.q_len, shape.head_dim_v, 4, 1);
  inputs.lse_gradient =
      oracle::random_tensor(shape.batch, shape.query_heads, shape.q_len, 1, oracle::Format::f32, seed * 16 + 5);
  inputs.sink = oracle::random_tensor(1, shape.query_heads, 1, 1, oracle::Format::f32, seed * 16 + 6);
  return inputs;
}

oracle::Problem AttentionTest::problem(const Scenario& scenario, const Inputs& inputs) const {
  oracle::Problem problem;
  problem.query = inputs.query;
  problem.key = inputs.key;
  problem.value = inputs.value;
  problem.scale = scenario.scale ? *scenario.scale : 1 / std::sqrt(static_cast<double>(scenario.shape.head_dim_qk));
  problem.visible = scenario.visible;
  problem.score = scenario.score_function;
  for (const LookedUpTensor& tensor : scenario.score_gradients) problem.score_tensors.push_back(elements(tensor));
  if (scenario.with_sink) problem.sink = inputs.sink;
  if (scenario.backward) problem.out_gradient = inputs.out_gradient;
  if (scenario.backward && scenario.lse_gradient) problem.lse_gradient = inputs.lse_gradient;
  return problem;
}

Scenario AttentionTest::here(Scenario scenario) const {
  scenario.deterministic = scenario.deterministic || GetParam().deterministic;
  return scenario;
}

oracle::Answer AttentionTest::run(const Scenario& scenario, const Inputs& inputs) const {
  PlacedCall call(here(scenario), inputs, device(), dtype());
  expect_value(call.run(attention()));
  return call.read();
}

Error AttentionTest::refusal(const Scenario& scenario, const Inputs& inputs) const {
  PlacedCall call(scenario, inputs, device(), dtype());
  const Result<void> done = call.run(attention());
  if (!done) return done.error();
  ADD_FAILURE() << "the call was not refused";
  return {};
}

oracle::Answer AttentionTest::expect_passes(const Scenario& scenario, const Inputs& inputs) const {
  const oracle::Problem stated = problem(scenario, inputs);
  oracle::Answer ours = run(scenario, inputs);
  EXPECT_TRUE(
      oracle::passes(ours, oracle::reference_attention(stated), oracle::plain_attention(stated, format()), format()));
  return ours;
}

oracle::Answer AttentionTest::expect_passes(const Scenario& scenario, std::uint64_t seed) const {
  return expect_passes(scenario, random_inputs(scenario.shape, seed));
}

}  // namespace flashspan::tests
