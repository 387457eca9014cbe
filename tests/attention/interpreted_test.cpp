// interpreted_test.cpp -- masks that are data to one kernel: the same results as compiled ones, and how a frozen
// Attention comes to use them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"
#include "flashspan/device.hpp"

namespace flashspan::tests {
namespace {

class Interpreted : public AttentionTest {
 protected:
  static constexpr Index length = 150;

  static Mask interpreted(const Mask& mask) {
    const Mask forward = expect_value(mask.with_lowering(Direction::forward, LoweringKind::interpreted));
    return expect_value(forward.with_lowering(Direction::backward, LoweringKind::interpreted));
  }
  void expect_interpreted_passes(const Mask& mask, const oracle::Visible& visible) {
    SCOPED_TRACE(mask.text());
    expect_passes({.shape = shape_of(2, 4, 2, length, length, 64),
                   .mask = interpreted(mask),
                   .visible = visible,
                   .lse_gradient = true,
                   .with_sink = true});
  }
};
FLASHSPAN_ON_EVERY_PLACE(Interpreted);

TEST_P(Interpreted, EveryKindOfInstructionGivesTheMaskInBothDirections) {
  Integers document = document_ids({70, 1, 79});
  const std::vector<NamedTensor> documents{{"doc", view_of(document, {length})}};
  const auto doc = [&document](Index i) { return document[static_cast<std::size_t>(i)]; };
  expect_interpreted_passes(expect_value(Mask::parse("(doc[q] == doc[k]) & (q >= k)", documents)),
                            [&](Index, Index, Index q, Index k) { return doc(q) == doc(k) && q >= k; });
  Integers ends{0, 40, 100, 150, 30, 60, 120, 140};
  const std::vector<NamedTensor> ranges{{"ends", view_of(ends, {2, 4})}};
  expect_interpreted_passes(
      expect_value(Mask::parse("any(ends[b, 2 * r] <= k < ends[b, 2 * r + 1] for r in range(0, 2))", ranges)),
      [&](Index b, Index, Index, Index k) {
        const auto end = [&](Index i) { return ends[static_cast<std::size_t>(b * 4 + i)]; };
        return (end(0) <= k && k < end(1)) || (end(2) <= k && k < end(3));
      });
  expect_interpreted_passes(expect_value(Mask::parse("(q // 7 + h) % 3 != k * 4294967299 % 3 or abs(q - k) < 4 - h")),
                            [](Index, Index h, Index q, Index k) {
                              return (q / 7 + h) % 3 != k * 4294967299 % 3 || std::abs(q - k) < 4 - h;
                            });
}

TEST_P(Interpreted, OneKernelServesAllMasksOfItsHeadDims) {
  std::string key;
  for (const char* text : {"q >= k", "q >= k + 3", "(q + k) % 2 == 0"}) {
    const Scenario scenario{.shape = shape_of(1, 1, 1, 40, 40, 64),
                            .mask = interpreted(expect_value(Mask::parse(text)))};
    const PlacedCall placed(scenario, random_inputs(scenario.shape), device(), dtype());
    const KernelRecord record = expect_value(attention().prepare(placed.forward_call()));
    if (key.empty()) key = record.key;
    EXPECT_EQ(record.key, key) << text;
    EXPECT_EQ(record.lowering, "interpreted");
  }
}

TEST_P(Interpreted, AFrozenAttentionServesANewMaskAtOnceAndItsOwnKernelLater) {
  AttentionOptions options;
  options.cache_dir = "";
  options.log = [](LogLevel, std::string_view) {};
  Attention frozen = expect_value(Attention::open(device(), options));
  Scenario scenario{.shape = shape_of(1, 2, 2, length, length, 64),
                    .mask = Mask::causal(),
                    .visible = [](Index, Index, Index q, Index k) { return k <= q; }};
  const Inputs inputs = random_inputs(scenario.shape);
  {
    const PlacedCall known(scenario, inputs, device(), dtype());
    for (const auto& record : frozen.prepare_all({known.forward_call(), known.backward_call()})) expect_value(record);
  }
  expect_value(frozen.freeze(MissPolicy::interpret));
  scenario.mask = expect_value(Mask::parse("(q - k) % 5 < 3"));
  scenario.visible = [](Index, Index, Index q, Index k) { return ((q - k) % 5 + 5) % 5 < 3; };
  const auto expect_right = [&] {
    PlacedCall placed(scenario, inputs, device(), dtype());
    expect_value(placed.run(frozen));
    expect_value(synchronize(device()));
    const oracle::Problem asked = problem(scenario, inputs);
    EXPECT_TRUE(oracle::passes(placed.read(), oracle::reference_attention(asked),
                               oracle::plain_attention(asked, format()), format()));
  };
  expect_right();
  const PlacedCall placed(scenario, inputs, device(), dtype());
  EXPECT_NE(expect_value(frozen.prepare(placed.forward_call())).lowering, "interpreted");
  EXPECT_NE(expect_value(frozen.prepare(placed.backward_call())).lowering, "interpreted");
  expect_right();
  scenario.score = expect_value(Score::parse("score * 0.5"));
  PlacedCall scored(scenario, inputs, device(), dtype());
  const auto refused = scored.run(frozen);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::not_prepared);
}

}  // namespace
}  // namespace flashspan::tests
