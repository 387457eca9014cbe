// A KernelSpec survives its text, and its text, equality and hash tell apart whatever changes the code.
#include "codegen/kernel/kernel_spec.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <vector>

namespace flashspan::kernel {
namespace {

KernelSpec example() {
  KernelSpec spec;
  spec.direction = Direction::backward;
  spec.target = {DeviceKind::cuda, {90, 'a'}};
  spec.dtype = DType::bf16;
  spec.head_dim_qk = 192;
  spec.head_dim_v = 128;
  spec.mask = "doc: i32[1]; doc[q] == doc[k]";
  spec.score = "cap: real; cap * tanh(score / cap)";
  spec.aligned = false;
  spec.tile = {64, 32, 8, 2};
  return spec;
}

TEST(KernelSpec, RandomSpecsSurviveTheirText) {
  std::mt19937 random(7);
  const auto pick = [&random](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 2000; ++round) {
    KernelSpec spec;
    spec.direction = pick(0, 1) == 0 ? Direction::forward : Direction::backward;
    if (pick(0, 3) != 0) spec.target = {DeviceKind::cuda, {pick(70, 130), pick(0, 1) == 0 ? 'a' : '\0'}};
    spec.family = pick(0, 1) == 0 ? KernelFamily::mma : KernelFamily::hopper;
    spec.dtype = std::vector{DType::f32, DType::f16, DType::bf16}[static_cast<std::size_t>(pick(0, 2))];
    spec.head_dim_qk = pick(1, 256);
    spec.head_dim_v = pick(1, 256);
    spec.lowering = static_cast<LoweringKind>(pick(0, static_cast<int>(LoweringKind::expression)));
    spec.mask = std::string(static_cast<std::size_t>(pick(0, 20)), static_cast<char>(pick(' ', '~')));
    spec.score = pick(0, 1) == 0 ? "" : " = score = 1";
    spec.score_gradients = pick(0, 1) == 0 ? "" : "bias,slope";
    spec.aligned = pick(0, 1) == 0;
    spec.split_rows = pick(0, 1) == 0;
    spec.two_passes = pick(0, 1) == 0;
    spec.tile = {pick(1, 256), pick(1, 256), pick(1, 16), pick(1, 4)};
    const auto back = KernelSpec::from_text(spec.to_text());
    ASSERT_TRUE(back) << back.error().message() << "\n" << spec.to_text();
    EXPECT_EQ(*back, spec) << spec.to_text();
    EXPECT_EQ(KernelSpecHash{}(*back), KernelSpecHash{}(spec));
  }
}

TEST(KernelSpec, EveryFieldChangesEqualityTextAndHash) {
  const std::vector<std::function<void(KernelSpec&)>> changes{
      [](KernelSpec& spec) { spec.direction = Direction::forward; },
      [](KernelSpec& spec) { spec.target.arch.suffix = 0; },
      [](KernelSpec& spec) { spec.target.arch.number = 80; },
      [](KernelSpec& spec) { spec.target = {}; },
      [](KernelSpec& spec) { spec.family = KernelFamily::hopper; },
      [](KernelSpec& spec) { spec.dtype = DType::f16; },
      [](KernelSpec& spec) { spec.head_dim_qk = 128; },
      [](KernelSpec& spec) { spec.head_dim_v = 192; },
      [](KernelSpec& spec) { spec.lowering = mask::LoweringKind::none; },
      [](KernelSpec& spec) { spec.mask += " "; },
      [](KernelSpec& spec) { spec.score.clear(); },
      [](KernelSpec& spec) { spec.score_gradients = "cap"; },
      [](KernelSpec& spec) { spec.aligned = true; },
      [](KernelSpec& spec) { spec.split_rows = true; },
      [](KernelSpec& spec) { spec.two_passes = true; },
      [](KernelSpec& spec) { spec.tile.block_m = 128; },
      [](KernelSpec& spec) { spec.tile.block_n = 128; },
      [](KernelSpec& spec) { spec.tile.num_warps = 4; },
      [](KernelSpec& spec) { spec.tile.num_stages = 1; },
  };
  std::set<std::string> texts{example().to_text()};
  std::set<std::size_t> hashes{KernelSpecHash{}(example())};
  for (const auto& change : changes) {
    KernelSpec spec = example();
    change(spec);
    EXPECT_NE(spec, example());
    EXPECT_TRUE(texts.insert(spec.to_text()).second) << spec.to_text();
    EXPECT_TRUE(hashes.insert(KernelSpecHash{}(spec)).second) << spec.to_text();
  }
}

TEST(KernelSpec, MalformedTextIsANamedError) {
  const std::string text = example().to_text();
  const auto replaced = [&text](const std::string& from, const std::string& to) {
    std::string result = text;
    return result.replace(result.find(from), from.size(), to);
  };
  for (const auto& [broken, field] : std::vector<std::pair<std::string, std::string>>{
           {replaced("direction = backward", "direction = sideways"), "direction"},
           {replaced("target = sm_90a", "target = sm_"), "target"},
           {replaced("lowering = expression", "lowering = fast"), "lowering"},
           {replaced("head_dim_qk = 192", "head_dim_qk = 19x"), "head_dim_qk"},
           {replaced("aligned = false", "aligned = maybe"), "aligned"},
           {replaced("num_warps = 8\n", ""), "num_warps"},
           {text + "colour = red\n", "colour"},
           {text + "dtype = f16\n", "dtype"}}) {
    const auto spec = KernelSpec::from_text(broken);
    ASSERT_FALSE(spec) << broken;
    EXPECT_NE(spec.error().argument.find(field), std::string::npos) << spec.error().message();
  }
}

TEST(KernelSpec, ScoreGradientsThatAreNotAskedForLeaveNoLine) {
  EXPECT_EQ(example().to_text().find("score_gradients"), std::string::npos);
  KernelSpec spec = example();
  spec.score_gradients = "bias";
  EXPECT_NE(spec.to_text().find("score_gradients = bias\n"), std::string::npos);
}

TEST(KernelSpec, SummaryNamesWhatPeopleAskFor) {
  EXPECT_EQ(example().summary(), "backward sm_90a bf16 d192/128 64x32 expression score unaligned");
}

}  // namespace
}  // namespace flashspan::kernel
