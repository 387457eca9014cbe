// A spec that comes as text passes if and only if a call could have it.
#include "runtime/attention/check_spec.hpp"

#include <gmock/gmock.h>

#include <functional>

#include "codegen/kernel/resource_model.hpp"
#include "codegen/kernel/tile_config.hpp"
#include "flashspan/mask.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/choose_spec.hpp"

namespace flashspan::testing {
namespace {

using kernel::KernelSpec;
using ::testing::HasSubstr;

std::vector<KernelSpec> specs_of_calls() {
  std::vector<float> slope_values(8);
  const auto slopes = TensorView::contiguous(slope_values.data(), DType::f32, {8});
  const auto score = Score::parse("score - slopes[h] * abs(q - k)", {{"slopes", slopes}});
  EXPECT_TRUE(score.has_value());
  const Mask masks[] = {Mask::full(), Mask::causal(), *Mask::parse("(q * k) % 3 == 0")};
  std::vector<KernelSpec> specs;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const Arch arch : {Arch{80, 0}, Arch{90, 'a'}, Arch{120, 'a'}}) {
      for (const int head_dim : {64, 128, 256}) {
        for (const bool general : {true, false}) {
          attention::SpecChoice choice;
          choice.direction = direction;
          choice.target = {DeviceKind::cuda, arch};
          choice.dtype = DType::bf16;
          choice.head_dim_qk = choice.head_dim_v = head_dim;
          choice.aligned = choice.few_rows = general;
          choice.needs.deterministic = !general;
          for (const Mask& mask : masks) {
            specs.push_back(*choose_spec(choice, mask.state(), nullptr));
            while (auto fallback = kernel::fallback_of(specs.back())) specs.push_back(*fallback);
            if (auto interpreted = kernel::interpreted_of(specs.back())) specs.push_back(*interpreted);
          }
          if (direction == Direction::backward) choice.score_gradients = "slopes";
          specs.push_back(*choose_spec(choice, masks[1].state(), &score->state()));
        }
      }
    }
  }
  attention::SpecChoice cpu;
  cpu.dtype = DType::f32;
  cpu.head_dim_qk = cpu.head_dim_v = 24;
  specs.push_back(*choose_spec(cpu, masks[1].state(), nullptr));
  return specs;
}

TEST(CheckSpec, TakesEverySpecThatACallMayHave) {
  for (const KernelSpec& spec : specs_of_calls()) {
    const auto checked = attention::check_spec(spec);
    EXPECT_TRUE(checked.has_value()) << checked.error().message() << "\n" << spec.to_text();
  }
}

TEST(CheckSpec, TakesEveryTileThatACallMayAskFor) {
  for (KernelSpec spec : specs_of_calls()) {
    for (const TileConfig& tile : kernel::legal_tiles(spec)) {
      spec.tile = tile;
      EXPECT_EQ(attention::check_spec(spec).has_value(), kernel::check_tile(spec).has_value()) << spec.to_text();
    }
  }
}

TEST(CheckSpec, RefusesWhatNoCallHasAndNamesTheField) {
  attention::SpecChoice choice;
  choice.direction = Direction::backward;
  choice.target = {DeviceKind::cuda, {90, 'a'}};
  choice.dtype = DType::bf16;
  choice.head_dim_qk = choice.head_dim_v = 128;
  const KernelSpec good = *choose_spec(choice, Mask::causal().state(), nullptr);
  ASSERT_TRUE(attention::check_spec(good).has_value());
  const std::vector<std::pair<std::string, std::function<void(KernelSpec&)>>> faults{
      {"head dim", [](KernelSpec& spec) { spec.head_dim_qk = 4096; }},
      {"head dim", [](KernelSpec& spec) { spec.head_dim_v = -8; }},
      {"dtype", [](KernelSpec& spec) { spec.dtype = DType::i32; }},
      {"mask", [](KernelSpec& spec) { spec.mask = "q >="; }},
      {"mask", [](KernelSpec& spec) { spec.mask = " q >= k"; }},
      {"mask", [](KernelSpec& spec) { spec.mask = "q + k"; }},
      {"'mask'", [](KernelSpec& spec) { spec.lowering = mask::LoweringKind::interpreted; }},
      {"'score'", [](KernelSpec& spec) { spec.score = "q >= k"; }},
      {"'score_gradients'", [](KernelSpec& spec) { spec.score_gradients = "slopes"; }},
      {"'score_gradients'", [](KernelSpec& spec) { spec.score = "score", spec.score_gradients = "slopes"; }},
      {"'family'", [](KernelSpec& spec) { spec.target.arch = {80, 0}; }},
      {"'two_passes'", [](KernelSpec& spec) { spec.direction = Direction::forward, spec.two_passes = true; }},
      {"'split_rows'", [](KernelSpec& spec) { spec.split_rows = true; }},
      {"arch", [](KernelSpec& spec) { spec.target.arch = {75, 0}; }},
      {"tile", [](KernelSpec& spec) { spec.tile.block_m = 1 << 20; }},
      {"tile", [](KernelSpec& spec) { spec.tile.num_warps += 1; }},
  };
  for (const auto& [name, spoil] : faults) {
    KernelSpec bad = good;
    spoil(bad);
    const auto checked = attention::check_spec(bad);
    ASSERT_FALSE(checked.has_value()) << name << "\n" << bad.to_text();
    EXPECT_THAT(checked.error().message(), HasSubstr(name));
  }
}

}  // namespace
}  // namespace flashspan::testing
