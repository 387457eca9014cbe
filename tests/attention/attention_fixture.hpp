// attention_fixture.hpp -- one test body for every back end: describe a call, run it on the place under test, and
// compare with the oracle. A test names its mask twice: as the library's Mask and as an independent predicate.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "attention/placed_tensor.hpp"
#include "flashspan/attention.hpp"
#include "oracle/attention.hpp"
#include "oracle/pass_rule.hpp"

namespace flashspan::tests {

using oracle::Index;

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// Where a test runs, and the element type of its tensors.
struct Place {
  DeviceKind kind = DeviceKind::cpu;
  DType dtype = DType::f32;
  bool deterministic = false;  ///< every backward is asked to be: other kernels serve it then
};
[[nodiscard]] std::string name_of(const testing::TestParamInfo<Place>& place);
/// The places this build can have: f32 and bf16 on the CPU if the CPU back end is built, bf16 on CUDA, where backwards
/// have other kernels if they are to be deterministic.
[[nodiscard]] std::vector<Place> places();
/// All the element types: f16 too.
[[nodiscard]] std::vector<Place> places_of_every_dtype();

/// A tensor of the score by its name in the text, and its shape.
struct LookedUpTensor {
  std::string name;
  std::vector<Index> shape;
};

/// What a call does, apart from its data.
// NOLINTBEGIN(readability-redundant-member-init): members with an initialiser may be left out of a designated list.
struct Scenario {
  AttentionShape shape = {};
  std::optional<Mask> mask = {};  ///< tensors in host memory; nothing: every key is visible
  oracle::Visible visible = {};   ///< the same mask, independently; empty: every key is visible
  std::optional<Score> score = {};
  std::optional<oracle::ScoreFunction> score_function = {};
  std::optional<float> scale = {};
  bool with_lse = true;  ///< forward only: whether lse is asked for
  bool backward = true;
  bool lse_gradient = false;
  bool deterministic = false;  ///< for whoever compares bits: sums of dQ may have any order else
  bool with_sink = false;
  bool with_sink_gradient = true;  ///< if with_sink; false: the backward is not given the sink
  bool expanded_sink = false;      ///< stride 0: every head has the first one's
  /// Tensors of the score whose gradients are asked for; score_function's slopes number them in this order.
  std::vector<LookedUpTensor> score_gradients = {};
  std::optional<TileConfig> forward_tile = {}, backward_tile = {};  ///< nothing: as calls choose
  // Memory arrangements; results lie as their inputs do.
  Arrangement query = {}, key = {}, value = {}, out = {}, out_gradient = {}, statistics = {}, sink = {};
  Arrangement score_gradient = {};  ///< its rows are along the last axis
};
// NOLINTEND(readability-redundant-member-init)

/// Values of a call's inputs, representable in its element type.
struct Inputs {
  oracle::Tensor query, key, value, out_gradient, lse_gradient;
  oracle::Tensor sink;  ///< [1, Hq, 1, 1]
};

/// A shape in one line: batch, query heads, key heads, lengths, head dims (qk = v if v is not given).
[[nodiscard]] AttentionShape shape_of(Index batch, Index query_heads, Index kv_heads, Index q_len, Index kv_len,
                                      Index head_dim_qk, Index head_dim_v = 0);

/// The tensors of one call on a device, with poison around them and in the results; runs the call.
class PlacedCall {
 public:
  PlacedCall(const Scenario& scenario, const Inputs& inputs, Device device, DType dtype);
  PlacedCall(const PlacedCall&) = delete;
  PlacedCall& operator=(const PlacedCall&) = delete;

  /// Calls to hand to Attention; the workspace is still to be set.
  [[nodiscard]] ForwardCall forward_call() const;
  [[nodiscard]] BackwardCall backward_call() const;
  /// Runs forward and, if asked for, backward, each with a poisoned workspace of exactly the bytes the query says, and
  /// waits for them.
  Result<void> run(Attention& attention, Stream stream = {});
  /// The results as they are now. Fails the test if memory around any tensor was written.
  [[nodiscard]] oracle::Answer read() const;

 private:
  [[nodiscard]] bool surroundings_untouched() const;
  [[nodiscard]] TensorView sink() const;
  [[nodiscard]] std::vector<NamedTensor> score_gradients() const;

  Scenario scenario_;
  Device device_;
  std::optional<Mask> mask_;
  std::optional<Score> score_;
  PlacedTensor query_, key_, value_, sink_, out_, lse_;
  PlacedTensor out_gradient_, lse_gradient_, query_gradient_, key_gradient_, value_gradient_, sink_gradient_;
  std::vector<PlacedTensor> score_gradients_;
};

class AttentionTest : public testing::TestWithParam<Place> {
 protected:
  void SetUp() override;

  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] DType dtype() const { return GetParam().dtype; }
  [[nodiscard]] oracle::Format format() const { return format_of(dtype()); }
  [[nodiscard]] bool on_cuda() const { return device_.kind == DeviceKind::cuda; }
  /// One for the process and device, with a memory cache only.
  [[nodiscard]] Attention& attention() const;

  /// Standard normal inputs times `magnitude`.
  [[nodiscard]] Inputs random_inputs(const AttentionShape& shape, std::uint64_t seed = 1, double magnitude = 1) const;
  [[nodiscard]] oracle::Problem problem(const Scenario& scenario, const Inputs& inputs) const;
  /// The scenario as this place asks for it.
  [[nodiscard]] Scenario here(Scenario scenario) const;
  /// Runs the call on the device. A refused call ends the test with its message.
  oracle::Answer run(const Scenario& scenario, const Inputs& inputs) const;
  /// The error that the call is refused with; fails the test if it is not.
  Error refusal(const Scenario& scenario, const Inputs& inputs) const;
  /// Runs the call and compares everything with the oracle under the pass rule. Returns what the device gave.
  oracle::Answer expect_passes(const Scenario& scenario, const Inputs& inputs) const;
  oracle::Answer expect_passes(const Scenario& scenario, std::uint64_t seed = 1) const;

 private:
  Device device_;
};

#define FLASHSPAN_ON_EVERY_PLACE(suite) \
  INSTANTIATE_TEST_SUITE_P(Places, suite, testing::ValuesIn(flashspan::tests::places()), flashspan::tests::name_of)

}  // namespace flashspan::tests
