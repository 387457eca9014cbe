// Compiled mask and score programs against direct evaluation, at every point.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "codegen/kernel/emit_llvm_parts.hpp"
#include "codegen/mask/evaluate.hpp"
#include "codegen/mask/score_derivative.hpp"
#include "codegen/mask/simplify.hpp"
#include "cpu_kernel.hpp"
#include "random_program.hpp"
#include "runtime/cpu/program_binding.hpp"

namespace flashspan::cpu_test {
namespace {

constexpr TileConfig tile{.block_m = 24, .block_n = 48};
constexpr std::int64_t rows = 19;
constexpr std::int64_t cols = 41;

cpu::LoadedObject load_text(const std::string& functions) {
  const std::string text = "@zero_element = internal constant i64 0, align 8\n" +
                           kernel::emit_llvm_elementary_functions() + functions + "attributes #0 = { nounwind }\n";
  auto object = cpu::compile_ir(text);
  EXPECT_TRUE(object.has_value()) << object.error().message() << text;
  auto loaded = cpu::LoadedObject::load(*object);
  EXPECT_TRUE(loaded.has_value()) << loaded.error().message();
  return std::move(*loaded);
}

// Compares every point of one tile; returns the number of visible pairs.
std::int64_t compare_mask(const mask::Program& program, const mask::Bindings& bindings, const mask::Point& corner) {
  const cpu::LoadedObject object = load_text(kernel::emit_llvm_mask(program, tile));
  const auto mask_tile = reinterpret_cast<decltype(cpu::TileFunctions::mask_tile)>(object.address("mask_tile"));
  const cpu::ProgramBinding binding(&bindings, corner.q_len, corner.kv_len);
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(tile.block_m * tile.block_n / 16), 0);
  const std::int64_t visible =
      mask_tile(binding.data(), corner.b, corner.h, corner.q, corner.k, rows, cols, bits.data());
  std::int64_t expected_visible = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < tile.block_n; ++col) {
      mask::Point point = corner;
      point.q += row;
      point.k += col;
      const bool expected = col < cols && mask::evaluate_mask(program, bindings, point);
      const auto word = static_cast<std::size_t>(row * tile.block_n / 16 + col / 16);
      EXPECT_EQ((bits[word] >> (col % 16) & 1) != 0, expected)
          << program.to_signature() << "\nat q " << point.q << " k " << point.k;
      if (testing::Test::HasFailure()) return -1;
      expected_visible += expected ? 1 : 0;
    }
  }
  EXPECT_EQ(visible, expected_visible);
  return visible;
}

TEST(MaskTile, EqualsDirectEvaluationForRandomPrograms) {
  int neither_empty_nor_full = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const RandomProgram random(seed, false);
    const auto shift = static_cast<std::int64_t>(seed % 3) * 30;
    const mask::Point corner{1, 2, shift, shift / 2, 128, 120, 0};
    const std::int64_t visible = compare_mask(random.program(), random.bindings(), corner);
    if (HasFailure()) FAIL() << "seed " << seed;
    neither_empty_nor_full += visible > 0 && visible < rows * cols ? 1 : 0;
  }
  EXPECT_GE(neither_empty_nor_full, 20);
}

TEST(MaskTile, FloorsLikePythonForEverySmallDivisor) {
  for (const char* text : {"(q - 20) // d == (k - 15) // d", "(q - 20) % d == (k - 15) % d", "(q - k) // 3 == -2",
                           "(q - k) % 3 == 1", "(q - k) % -3 == -1", "(q - k) // 4 <= -3", "(q - k) % 4 == 3",
                           "(q - k) // (k - 20) == -1", "(q - k) % (q - k) == 0", "q // 0 == 0 and k % 0 == 0"}) {
    for (std::int64_t divisor = -4; divisor <= 4; ++divisor) {
      const BoundProgram bound = bound_program(text, true, {}, {{"d", divisor}});
      compare_mask(bound.program, bound.bindings, {0, 0, 3, 1, 64, 64, 0});
      ASSERT_FALSE(HasFailure()) << text << " with " << divisor;
    }
  }
}

// In a lane whose loop has ended, or that has no key, bounds of loops inside may be what the language never gives them.
TEST(MaskTile, FollowsOnlyTheTurnsThatItsKeysTake) {
  for (const char* text :
       {"any(r % 7 == q % 7 for r in range(k * 1000000000, k * 1000000000 + 4))",
        "any(any(s == q for s in range(0 if r < 1 + k % 2 else 1000000000, 3 if r < 1 + k % 2 else 4000000000000)) "
        "for r in range(1 + k % 2))",
        "any(r == q for r in range(0, 3 if k < kv_len else 4000000000000))"}) {
    const BoundProgram bound = bound_program(text, true, {}, {});
    EXPECT_GT(compare_mask(bound.program, bound.bindings, {0, 0, 0, 0, 64, cols, 0}), 0) << text;
  }
}

TEST(MaskTile, SurvivesTheDivisionsThatTrap) {
  const std::int64_t smallest = std::numeric_limits<std::int64_t>::min();
  for (const char* text : {"n // d == n and k >= 0", "n % d == 0 and q >= k", "(n + k) // d < 0", "(n + k) % d == 0",
                           "(k - k + n) // (d + q - q) <= k"}) {
    for (const std::int64_t divisor : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, smallest}) {
      const BoundProgram bound = bound_program(text, true, {}, {{"n", smallest}, {"d", divisor}});
      compare_mask(bound.program, bound.bindings, {0, 0, 0, 0, 64, 64, 0});
      ASSERT_FALSE(HasFailure()) << text << " with " << divisor;
    }
  }
}

void compare_score(const mask::Program& program, const mask::Bindings& bindings, double tolerance) {
  const cpu::LoadedObject object = load_text(kernel::emit_llvm_score("score_tile", program, tile));
  const auto score_tile = reinterpret_cast<decltype(cpu::TileFunctions::score_tile)>(object.address("score_tile"));
  const cpu::ProgramBinding binding(&bindings, 100, 90);
  oracle::RandomNumbers random(3);
  std::vector<float> scores(static_cast<std::size_t>(tile.block_m * tile.block_n));
  for (float& score : scores) score = static_cast<float>(4 * random.normal());
  std::vector<float> results = scores;
  score_tile(binding.data(), 1, 2, 30, 20, rows, cols, results.data(), results.data());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      const auto place = static_cast<std::size_t>(row * tile.block_n + col);
      const mask::Point point{1, 2, 30 + row, 20 + col, 100, 90, scores[place]};
      const float expected = mask::evaluate_score(program, bindings, point);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(results[place])) << program.to_signature();
      } else if (std::isinf(expected) || tolerance == 0) {
        ASSERT_EQ(results[place], expected) << program.to_signature() << " score " << point.score;
      } else {
        ASSERT_NEAR(results[place], expected, tolerance * (1 + std::abs(expected))) << program.to_signature();
      }
    }
  }
}

TEST(ScoreTile, EqualsDirectEvaluationForRandomPrograms) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const RandomProgram random(seed, true);
    compare_score(random.program(), random.bindings(), 0);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(ScoreTile, ComputesElementaryFunctions) {
  for (const char* text : {"30.0 * tanh(score / 30.0)", "exp(score) - 1.0", "log(abs(score) + 0.5)",
                           "score - 0.25 * sqrt(abs(float(q - k)))", "tanh(0.5) * score + exp(-1.0)"}) {
    const BoundProgram bound = bound_program(text, false);
    compare_score(bound.program, bound.bindings, 1e-6);
    compare_score(mask::derivative_by_score(bound.program), bound.bindings, 2e-6);
    ASSERT_FALSE(HasFailure()) << text;
  }
}

}  // namespace
}  // namespace flashspan::cpu_test
