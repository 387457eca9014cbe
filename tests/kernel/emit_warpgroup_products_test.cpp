// The asynchronous products as text: instruction shapes, steps and descriptor offsets, against the layout that
// templates/ptx/warpgroup.cuh describes, and the stand-in that lets the templates compile alone.
#include "codegen/kernel/emit_warpgroup_products.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace flashspan::kernel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Product {
  std::vector<std::string> instructions;  ///< "m64n128k16.f32.bf16.bf16", one a step
  std::vector<int> a_offsets, b_offsets;  ///< descriptor units of 16 bytes, of every step but the first
  std::string text;
};

Product product(const std::string& text) {
  Product result;
  result.text = text;
  const auto each = [&text](const char* pattern, const auto& take) {
    const std::regex regex(pattern);
    for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match) take((*match)[1]);
  };
  each("wgmma\\.mma_async\\.sync\\.aligned\\.(\\S+) ",
       [&](const auto& shape) { result.instructions.push_back(shape); });
  each("add\\.s64 a, %\\d+, (\\d+);", [&](const auto& offset) { result.a_offsets.push_back(std::stoi(offset)); });
  each("add\\.s64 b, %\\d+, (\\d+);", [&](const auto& offset) { result.b_offsets.push_back(std::stoi(offset)); });
  return result;
}

struct Products {
  Product scores, values;
};

Products emitted(DType dtype, int head_dim_qk, int head_dim_v, TileConfig tile) {
  KernelSpec spec;
  spec.target = {DeviceKind::cuda, {90, 'a'}};
  spec.family = KernelFamily::hopper;
  spec.dtype = dtype;
  spec.head_dim_qk = head_dim_qk;
  spec.head_dim_v = head_dim_v;
  spec.tile = tile;
  const std::string text = emit_warpgroup_products(spec);
  const std::size_t middle = text.find("/// out += P V");
  return {product(text.substr(0, middle)), product(text.substr(middle))};
}

std::string emitted_backward(int head_dim_qk, int head_dim_v, int block_m) {
  KernelSpec spec;
  spec.direction = Direction::backward;
  spec.target = {DeviceKind::cuda, {90, 'a'}};
  spec.family = KernelFamily::hopper;
  spec.dtype = DType::bf16;
  spec.head_dim_qk = head_dim_qk;
  spec.head_dim_v = head_dim_v;
  spec.tile = {.block_m = block_m, .block_n = 128, .num_warps = 8, .num_stages = 2};
  return emit_warpgroup_products(spec);
}

constexpr TileConfig wide{.block_m = 128, .block_n = 128, .num_warps = 8, .num_stages = 2};

TEST(WarpgroupProducts, StandInIsWhatIsEmittedForItsShape) {
  KernelSpec spec;
  spec.dtype = DType::bf16;
  spec.head_dim_qk = spec.head_dim_v = 128;
  spec.tile = wide;
  std::ostringstream stand_in;
  stand_in << std::ifstream(std::filesystem::path(FLASHSPAN_SOURCE_DIR) / "templates/generated/warpgroup_products.cuh")
                  .rdbuf();
  EXPECT_EQ(emit_warpgroup_products(spec), stand_in.str());
}

TEST(BackwardProducts, StandInIsWhatIsEmittedForItsShape) {
  std::ostringstream stand_in;
  stand_in << std::ifstream(std::filesystem::path(FLASHSPAN_SOURCE_DIR) / "templates/generated/backward_products.cuh")
                  .rdbuf();
  KernelSpec spec;
  spec.direction = Direction::backward;
  spec.family = KernelFamily::hopper;
  spec.dtype = DType::bf16;
  spec.head_dim_qk = spec.head_dim_v = 128;
  spec.two_passes = true;
  spec.tile = wide;
  EXPECT_EQ(emit_warpgroup_products(spec), stand_in.str());
  // One pass has the same products but for the last.
  const std::string one_pass = emitted_backward(128, 128, 64);
  EXPECT_THAT(stand_in.str(), testing::StartsWith(one_pass.substr(0, one_pass.rfind("}  // namespace"))));
}

// Scores and their gradients have rows of keys; dK and dV too; dQ has rows of queries, and keys to sum over.
TEST(BackwardProducts, HaveTheShapesOfTheirSharesOfATile) {
  const std::string wide = emitted_backward(96, 128, 64);
  const auto instructions = [&wide](const char* function) {
    const std::size_t begin = wide.find(function);
    return product(wide.substr(begin, wide.find("///", begin) - begin)).instructions;
  };
  const auto expect = [&](const char* function, std::size_t steps, const char* instruction) {
    EXPECT_THAT(instructions(function), testing::AllOf(testing::SizeIs(steps), testing::Each(std::string(instruction))))
        << function;
  };
  expect("multiply_scores", 6, "m64n64k16.f32.bf16.bf16");
  expect("multiply_weight_gradients", 8, "m64n64k16.f32.bf16.bf16");
  expect("accumulate_value_gradient", 4, "m64n128k16.f32.bf16.bf16");
  expect("accumulate_key_gradient", 4, "m64n96k16.f32.bf16.bf16");
  expect("multiply_query_gradient", 8, "m64n64k16.f32.bf16.bf16");
}

TEST(BackwardProducts, StartGradientsOfKeysAnewOrGoOnAsTheyAreTold) {
  const std::string text = emitted_backward(128, 128, 64);
  const std::size_t begin = text.find("accumulate_key_gradient");
  const std::string key = text.substr(begin, text.find("///", begin) - begin);
  EXPECT_THAT(key, testing::AllOf(HasSubstr("u64 score_gradients, u64 query,"), HasSubstr("bool accumulate)")));
  EXPECT_THAT(key, HasSubstr("setp.ne.b32 start, %66, 0;"));
  EXPECT_THAT(key, HasSubstr("%64, %65, start, 1, 1, 0, 1;")) << "dS^T has the queries along its rows, Q across";
  EXPECT_THAT(key, HasSubstr("a, b, add, 1, 1, 0, 1;"));
}

TEST(WarpgroupProducts, InstructionsHaveTheShapeOfTheTileAndTheTypeOfTheOperands) {
  const Products bf16 = emitted(DType::bf16, 64, 96, wide);
  EXPECT_THAT(bf16.scores.instructions, testing::Each(std::string("m64n128k16.f32.bf16.bf16")));
  EXPECT_THAT(bf16.values.instructions, testing::Each(std::string("m64n96k16.f32.bf16.bf16")));
  const Products f16 = emitted(DType::f16, 16, 256, {.block_m = 128, .block_n = 80, .num_warps = 8, .num_stages = 2});
  EXPECT_THAT(f16.scores.instructions, testing::Each(std::string("m64n80k16.f32.f16.f16")));
  EXPECT_THAT(f16.values.instructions, testing::Each(std::string("m64n256k16.f32.f16.f16")));
}

TEST(WarpgroupProducts, AStepIsSixteenOfTheInnerDimension) {
  for (const int head_dim : {16, 64, 96, 128, 192, 256}) {
    const Products products = emitted(DType::bf16, head_dim, 64, wide);
    EXPECT_EQ(products.scores.instructions.size(), static_cast<std::size_t>(head_dim / 16)) << head_dim;
    EXPECT_EQ(products.values.instructions.size(), 8U) << "128 keys";
  }
  // 24 columns are two steps: the second half of the second is zero in shared memory.
  EXPECT_EQ(emitted(DType::bf16, 24, 64, wide).scores.instructions.size(), 2U);
  EXPECT_EQ(emitted(DType::bf16, 64, 24, wide).values.instructions.front(), "m64n32k16.f32.bf16.bf16");
}

TEST(WarpgroupProducts, ScoresStartAtZeroAndValuesAddToWhatIsThere) {
  const Products products = emitted(DType::bf16, 64, 64, wide);
  EXPECT_THAT(products.scores.text, HasSubstr("%64, %65, start, 1, 1, 0, 0;"));
  EXPECT_THAT(products.scores.text, HasSubstr("a, b, add, 1, 1, 0, 0;"));
  EXPECT_EQ(products.scores.text.find("start, 1", products.scores.text.find("start, 1") + 1), std::string::npos);
  EXPECT_EQ(products.values.text.find("start"), std::string::npos);
}

// A panel is 64 columns of 2 bytes, so 128 bytes a row: 16 columns are 2 units, a panel of 128 rows is 1024.
TEST(WarpgroupProducts, DescriptorsOfHeadDim64StayInOnePanel) {
  const Products products = emitted(DType::bf16, 64, 64, {.block_m = 192, .block_n = 128, .num_warps = 12});
  EXPECT_THAT(products.scores.a_offsets, ElementsAre(2, 4, 6));
  EXPECT_THAT(products.scores.b_offsets, ElementsAre(2, 4, 6));
}

TEST(WarpgroupProducts, DescriptorsOfHeadDim96GoHalfIntoASecondPanel) {
  const Products products = emitted(DType::bf16, 96, 96, wide);
  EXPECT_THAT(products.scores.a_offsets, ElementsAre(2, 4, 6, 1024, 1026));
  EXPECT_THAT(products.scores.b_offsets, ElementsAre(2, 4, 6, 1024, 1026));
}

TEST(WarpgroupProducts, DescriptorsOfHeadDim192CrossPanelsOfTheirOwnRows) {
  const Products products =
      emitted(DType::bf16, 192, 192, {.block_m = 128, .block_n = 112, .num_warps = 8, .num_stages = 2});
  EXPECT_THAT(products.scores.a_offsets, ElementsAre(2, 4, 6, 1024, 1026, 1028, 1030, 2048, 2050, 2052, 2054));
  EXPECT_THAT(products.scores.b_offsets, ElementsAre(2, 4, 6, 896, 898, 900, 902, 1792, 1794, 1796, 1798));
}

TEST(WarpgroupProducts, ValuesAdvanceBySixteenRowsWhateverTheHeadDim) {
  for (const int head_dim : {64, 96, 192}) {
    const Products products =
        emitted(DType::bf16, 64, head_dim, {.block_m = 128, .block_n = 80, .num_warps = 8, .num_stages = 2});
    EXPECT_THAT(products.values.b_offsets, ElementsAre(128, 256, 384, 512)) << head_dim;
    EXPECT_TRUE(products.values.a_offsets.empty()) << "weights are registers";
  }
}

TEST(WarpgroupProducts, EveryRegisterIsNamedOnce) {
  const Products products = emitted(DType::bf16, 64, 192, wide);
  EXPECT_THAT(products.values.text, HasSubstr("float (&out)[96], const u32 (&weights)[32]"));
  // 96 results, then 32 weights of which a step takes 4, then the descriptor.
  EXPECT_THAT(products.values.text, HasSubstr("%95}, {%96, %97, %98, %99}, %128, add"));
  EXPECT_THAT(products.values.text, HasSubstr("%95}, {%124, %125, %126, %127}, b, add"));
  EXPECT_THAT(products.values.text, HasSubstr("add.s64 b, %128, 896;"));
}

}  // namespace
}  // namespace flashspan::kernel
