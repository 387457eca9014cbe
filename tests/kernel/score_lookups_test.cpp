// Where the lookups of a score look: what their places depend on, and which tensors they belong to.
#include "codegen/kernel/score_lookups.hpp"

#include <gtest/gtest.h>

#include "codegen/mask/parser.hpp"
#include "codegen/mask/simplify.hpp"

namespace flashspan::kernel {
namespace {

mask::Program score_of(const std::string& text) {
  const auto program = mask::parse(text, mask::ProgramKind::score, {{"width", mask::ValueType::integer}},
                                   {{"t", DType::f32, 1}, {"u", DType::bf16, 2}, {"at", DType::i32, 1}});
  EXPECT_TRUE(program) << program.error().message();
  return mask::simplify(*program);
}

TEST(ScoreLookups, AreThoseOfTheNamedTensorsThatTheScoreChangesWith) {
  const mask::Program score = score_of("where(t[q] > 0, score + t[k] * u[h, k], u[b, q])");
  const auto of = [&](const std::string& names) {
    std::vector<std::string> found;
    for (const ScoreLookup& lookup : score_lookups(score, names)) {
      found.push_back(std::to_string(lookup.gradient) + ": " + lookup.at.to_text());
    }
    return found;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(of("t"), Texts{"0: t[k]"}) << "t[q] is only compared";
  EXPECT_EQ(of("t,u"), (Texts{"0: t[k]", "1: u[h, k]", "1: u[b, q]"}));
  EXPECT_EQ(of(""), Texts{});
}

ScoreLookup lookup_of(const std::string& text) { return score_lookups(score_of("score + " + text), "t,u").at(0); }

TEST(ScoreLookups, LookByDistanceWhereQueryAndKeyAreOnlyInDifferences) {
  for (const char* text :
       {"t[q - k]", "t[k - q + 100]", "u[h, q + kv_len - q_len - k]", "t[abs(q - k)]", "t[at[min(q - k, 64)]]",
        "t[(q - k) // 8 + at[k - q]]", "t[width - (k - q) * 3]", "t[q - k if q - k < 8 else at[(q - k) // width]]"}) {
    EXPECT_TRUE(lookup_of(text).by_distance()) << text;
  }
  for (const char* text :
       {"t[q]", "t[k]", "t[h]", "u[q, k]", "t[q + k]", "t[2 * q - k]", "u[q - k, k]", "t[q // 2 - k // 2]",
        "t[abs(q) - abs(k)]", "t[q - at[k]]", "t[q - k if q > 8 else 0]", "t[q - (k - q)]"}) {
    EXPECT_FALSE(lookup_of(text).by_distance()) << text;
  }
}

TEST(ScoreLookups, NamesAreJoinedAndSplit) {
  for (const std::vector<std::string>& names : {std::vector<std::string>{}, {"a"}, {"a", "bc", "d"}}) {
    EXPECT_EQ(split_names(join_names(names)), names);
  }
}

TEST(ScoreLookups, SumAlongDistancesWhereSharedMemoryHasRoom) {
  KernelSpec spec;
  spec.direction = Direction::backward;
  spec.target = {DeviceKind::cuda, {80, 0}};
  spec.tile = {64, 64, 4, 1};
  spec.head_dim_qk = 192;
  spec.head_dim_v = 176;
  const auto lookups = score_lookups(score_of("score + t[q - k]"), "t");
  EXPECT_TRUE(score_gradient_memory(spec, lookups).sums_distances);
  spec.target.arch = {86, 0};
  EXPECT_FALSE(score_gradient_memory(spec, lookups).sums_distances);
  EXPECT_LE(score_gradient_memory(spec, lookups).bytes, 99 * 1024);
}

}  // namespace
}  // namespace flashspan::kernel
