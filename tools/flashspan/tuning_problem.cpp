#include "tools/flashspan/tuning_problem.hpp"

#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "flashspan/device.hpp"
#include "tools/flashspan/device_tensor.hpp"
#include "tools/flashspan/host_array.hpp"

namespace flashspan::tool {
namespace {

/// Uniform in [-1, 1): small enough that no score overwhelms a row.
HostArray random_array(DType dtype, std::vector<std::int64_t> shape, unsigned seed) {
  HostArray array = HostArray::zeros(DType::f32, std::move(shape));
  std::minstd_rand generator(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  const std::int64_t count = array.element_count();
  for (std::int64_t i = 0; i < count; ++i) array.data<float>()[i] = values(generator);
  return converted(std::move(array), dtype);
}

}  // namespace

struct TuningProblem::State {
  Mask mask;
  std::optional<Score> score;
  AttentionShape shape;
  DType dtype;
  Device device;
  Direction direction;
  bool deterministic;
  DeviceTensor query, key, value, out, lse;
  DeviceTensor out_gradient, query_gradient, key_gradient, value_gradient;

  Result<void> fill() {
    const std::vector<std::int64_t> of_query{shape.batch, shape.query_heads, shape.q_len, shape.head_dim_qk};
    const std::vector<std::int64_t> of_key{shape.batch, shape.kv_heads, shape.kv_len, shape.head_dim_qk};
    const std::vector<std::int64_t> of_value{shape.batch, shape.kv_heads, shape.kv_len, shape.head_dim_v};
    const std::vector<std::int64_t> of_out{shape.batch, shape.query_heads, shape.q_len, shape.head_dim_v};
    unsigned seed = 1;
    const auto random = [&](DeviceTensor& tensor, const std::vector<std::int64_t>& sizes) -> Result<void> {
      auto made = DeviceTensor::from_host(device, random_array(dtype, sizes, seed++));
      if (!made) return made.error();
      tensor = *std::move(made);
      return {};
    };
    const auto empty = [&](DeviceTensor& tensor, DType of, const std::vector<std::int64_t>& sizes) -> Result<void> {
      auto made = DeviceTensor::allocate(device, of, sizes);
      if (!made) return made.error();
      tensor = *std::move(made);
      return {};
    };
    Result<void> done = random(query, of_query);
    if (done) done = random(key, of_key);
    if (done) done = random(value, of_value);
    if (done) done = empty(out, dtype, of_out);
    if (done) done = empty(lse, DType::f32, {shape.batch, shape.query_heads, shape.q_len});
    if (direction == Direction::forward) return done;
    if (done) done = random(out_gradient, of_out);
    if (done) done = empty(query_gradient, dtype, of_query);
    if (done) done = empty(key_gradient, dtype, of_key);
    if (done) done = empty(value_gradient, dtype, of_value);
    return done;
  }

  template <typename Call>
  void describe(Call& call) const {
    call.query = query.view();
    call.key = key.view();
    call.value = value.view();
    call.out = out.view();
    call.lse = lse.view();
    call.mask = &mask;
    call.score = score ? &*score : nullptr;
  }

  [[nodiscard]] ForwardCall forward() const {
    ForwardCall call;
    describe(call);
    return call;
  }

  [[nodiscard]] BackwardCall backward() const {
    BackwardCall call;
    describe(call);
    call.out_gradient = out_gradient.view();
    call.query_gradient = query_gradient.view();
    call.key_gradient = key_gradient.view();
    call.value_gradient = value_gradient.view();
    call.deterministic = deterministic;
    return call;
  }

  /// out and lse, which a backward reads.
  [[nodiscard]] Result<void> run_forward(Attention& attention) const {
    ForwardCall call = forward();
    const auto bytes = attention.workspace_bytes(call);
    if (!bytes) return bytes.error();
    const auto workspace = Buffer::allocate(device, *bytes);
    if (!workspace) return workspace.error();
    call.workspace = workspace->data();
    call.workspace_bytes = *bytes;
    if (auto done = attention.forward(call); !done) return done;
    return synchronize(device);
  }
};

TuningProblem::TuningProblem(std::unique_ptr<State> state) : state_(std::move(state)) {}
TuningProblem::~TuningProblem() = default;

Result<std::unique_ptr<TuningProblem>> TuningProblem::make(const MaskSource& source, const AttentionShape& shape,
                                                           DType dtype, Device device, Direction direction,
                                                           bool deterministic) {
  const auto mask = source.mask(shape);
  if (!mask) return mask.error();
  auto placed = mask->to(device);
  if (!placed) return placed.error();
  auto score = source.score();
  if (!score) return score.error();
  std::optional<Score> placed_score;
  if (*score) {
    auto moved = (*score)->to(device);
    if (!moved) return moved.error();
    placed_score = *std::move(moved);
  }
  std::unique_ptr<State> state(new State{*std::move(placed),
                                         std::move(placed_score),
                                         shape,
                                         dtype,
                                         device,
                                         direction,
                                         deterministic,
                                         {},
                                         {},
                                         {},
                                         {},
                                         {},
                                         {},
                                         {},
                                         {},
                                         {}});
  if (auto filled = state->fill(); !filled) return filled.error();
  return std::unique_ptr<TuningProblem>(new TuningProblem(std::move(state)));
}

Result<TuneReport> TuningProblem::tune(Attention& attention, const TuneOptions& options) {
  if (state_->direction == Direction::forward) return attention.tune(state_->forward(), options);
  if (auto done = state_->run_forward(attention); !done) return done.error();
  return attention.tune(state_->backward(), options);
}

}  // namespace flashspan::tool
