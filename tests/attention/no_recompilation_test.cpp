// no_recompilation_test.cpp -- new data, lengths and window sizes are no new kernel.
#include <gtest/gtest.h>

#include <set>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class NoRecompilation : public AttentionTest {
 protected:
  /// Keys of the kernels that the two directions of the scenario use; counts those that were not loaded yet.
  std::pair<std::string, std::string> kernels(const Scenario& scenario) {
    const PlacedCall placed(scenario, random_inputs(scenario.shape), device(), dtype());
    const KernelRecord forward = expect_value(attention().prepare(placed.forward_call()));
    const KernelRecord backward = expect_value(attention().prepare(placed.backward_call()));
    loads_ += forward.outcome == "loaded" ? 0 : 1;
    loads_ += backward.outcome == "loaded" ? 0 : 1;
    return {forward.key, backward.key};
  }
  int loads_ = 0;
};
FLASHSPAN_ON_EVERY_PLACE(NoRecompilation);

TEST_P(NoRecompilation, ASecondCallFindsItsKernelLoaded) {
  const Scenario scenario{.shape = shape_of(1, 1, 1, 70, 70, 48), .mask = expect_value(Mask::parse("q * 3 >= k * 2"))};
  kernels(scenario);
  EXPECT_EQ(loads_, 2);
  kernels(scenario);
  EXPECT_EQ(loads_, 2);
  const PlacedCall placed(scenario, random_inputs(scenario.shape), device(), dtype());
  EXPECT_EQ(expect_value(attention().prepare(placed.forward_call())).outcome, "loaded");
}

TEST_P(NoRecompilation, MaskDataMayChangeBetweenCalls) {
  constexpr Index length = 150;
  Integers document(length, 0);
  Scenario scenario{.shape = shape_of(1, 2, 1, length, length, 64),
                    .mask = expect_value(Mask::parse("document", {{"doc", view_of(document, {length})}})),
                    .visible = [&](Index, Index, Index q, Index k) {
                      return document[static_cast<std::size_t>(q)] == document[static_cast<std::size_t>(k)];
                    }};
  const auto first = kernels(scenario);
  const int loads = loads_;
  for (std::uint64_t step = 1; step < 4; ++step) {
    document = random_integers(length, 0, 3, step);  // in place: the mask still points to this memory
    scenario.mask = expect_value(Mask::parse("document", {{"doc", view_of(document, {length})}}));
    expect_passes(scenario);
    EXPECT_EQ(kernels(scenario), first);
  }
  EXPECT_EQ(loads_, loads);
}

TEST_P(NoRecompilation, AMaskOnTheCpuSeesItsMemoryAsItIsAtTheCall) {
  if (on_cuda()) GTEST_SKIP() << "masks are copied to the device by this suite";
  constexpr Index length = 100;
  Integers document(length, 0);
  Scenario scenario{.shape = shape_of(1, 1, 1, length, length, 64),
                    .mask = expect_value(Mask::parse("document", {{"doc", view_of(document, {length})}})),
                    .visible = [&](Index, Index, Index q, Index k) {
                      return document[static_cast<std::size_t>(q)] == document[static_cast<std::size_t>(k)];
                    }};
  expect_passes(scenario);
  for (std::size_t i = 0; i < length; ++i) document[i] = static_cast<std::int32_t>(i / 30);
  expect_passes(scenario);
}

// F089: lengths 1 .. 2000 in random order; strides follow the lengths, so there are two alignment classes at most.
TEST_P(NoRecompilation, LengthsWindowsAndBatchesNeedNoFurtherKernels) {
  oracle::RandomNumbers numbers(12);
  std::set<std::string> keys;
  for (int step = 0; step < 40; ++step) {
    const Index length = numbers.integer(1, 2000);
    const Index batch = numbers.integer(1, 2);
    const auto used = kernels({.shape = shape_of(batch, 1, 1, length, length, 40),
                               .mask = expect_value(Mask::window(numbers.integer(0, length), numbers.integer(0, 9)))});
    keys.insert(used.first);
    keys.insert(used.second);
  }
  EXPECT_LE(keys.size(), 4U);
  EXPECT_LE(loads_, 4);
}

// F072: what changes the code changes the kernel.
TEST_P(NoRecompilation, EveryPropertyThatChangesTheCodeChangesTheKernel) {
  const Scenario base{.shape = shape_of(1, 2, 1, 64, 64, 64), .mask = Mask::causal()};
  std::set<std::string> keys{kernels(base).first, kernels(base).second};
  const auto expect_new = [&](const Scenario& scenario, const char* what) {
    EXPECT_TRUE(keys.insert(kernels(scenario).first).second) << what;
  };
  Scenario other = base;
  other.mask = expect_value(Mask::parse("q > k"));
  expect_new(other, "mask");
  if (on_cuda()) {  // CPU kernels do not depend on head dims
    other = base;
    other.shape.head_dim_qk = 72;
    expect_new(other, "head dim of queries and keys");
    other = base;
    other.shape.head_dim_v = 72;
    expect_new(other, "head dim of values");
  }
  other = base;
  other.score = expect_value(Score::parse("score * 0.5"));
  expect_new(other, "score");
  other = base;
  other.scale = 3.0F;
  EXPECT_EQ(kernels(other), kernels(base)) << "scale is data";
}

}  // namespace
}  // namespace flashspan::tests
