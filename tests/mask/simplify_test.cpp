// simplify_test.cpp -- the laws of the simplifier one by one. That they keep every value is tested on random
// programs in random_programs_test.cpp.
#include "codegen/mask/simplify.hpp"

#include <gtest/gtest.h>

#include "tests/mask/parsed.hpp"

namespace flashspan::mask::test {
namespace {

struct Law {
  const char* from;
  const char* to;
};
void PrintTo(const Law& law, std::ostream* out) { *out << law.from; }

class SimplifyMask : public ::testing::TestWithParam<Law> {};
TEST_P(SimplifyMask, GivesTheShorterForm) { EXPECT_EQ(simplify(parsed(GetParam().from)).to_text(), GetParam().to); }

INSTANTIATE_TEST_SUITE_P(
    Constants, SimplifyMask,
    ::testing::Values(Law{"1 < 2", "True"}, Law{"q < 2 + 3 * 4", "q < 14"}, Law{"q < -7 // 2", "q < -4"},
                      Law{"q < -7 % 2", "q < 1"}, Law{"q < 7 // 0", "q < 0"}, Law{"q < 7 % 0", "q < 0"},
                      Law{"q < -9223372036854775808 // -1", "q < -9223372036854775808"},
                      Law{"q < 9223372036854775807 + 1", "q < -9223372036854775808"},
                      Law{"q < abs(-9223372036854775808)", "q < -9223372036854775808"},
                      Law{"q < min(3, 2, 5) + max(1, 4)", "q < 6"}, Law{"slope < 1.0 / 0.0", "slope < 0.0"},
                      Law{"slope < 1 / 3", "slope < 0.33333334"}, Law{"slope < 2", "slope < 2.0"},
                      Law{"slope < sqrt(2)", "slope < 1.4142135"}, Law{"slope < -(0.0)", "slope < -0.0"},
                      Law{"slope < exp(1.0)", "slope < exp(1.0)"}, Law{"slope < 3e38 * 10.0", "slope < 10.0 * 3e+38"},
                      Law{"slope < sqrt(-1.0)", "slope < sqrt(-1.0)"}));

INSTANTIATE_TEST_SUITE_P(
    Integers, SimplifyMask,
    ::testing::Values(Law{"q + 0 < k", "q < k"}, Law{"0 + q < k", "q < k"}, Law{"q - 0 < k", "q < k"},
                      Law{"q - q < k", "0 < k"}, Law{"0 - q < k", "-q < k"}, Law{"q * 1 < k", "q < k"},
                      Law{"q * 0 < k", "0 < k"}, Law{"q // 1 < k", "q < k"}, Law{"q % 1 < k", "0 < k"},
                      Law{"q // -1 < k", "-q < k"}, Law{"q % -1 < k", "0 < k"}, Law{"q // 0 < k", "0 < k"},
                      Law{"0 // q < k", "0 < k"}, Law{"q + -k < 3", "q - k < 3"}, Law{"-q + k < 3", "k - q < 3"},
                      Law{"q - -k < 3", "q + k < 3"}, Law{"q + 2 + 3 < k", "q + 5 < k"}, Law{"1 + q - 1 < k", "q < k"},
                      Law{"--q < k", "q < k"}, Law{"-(q - k) < b", "k - q < b"}, Law{"abs(-q) < k", "abs(q) < k"},
                      Law{"abs(abs(q)) < k", "abs(q) < k"}, Law{"min(q, q) < k", "q < k"}, Law{"q == q", "True"},
                      Law{"q <= q", "True"}, Law{"q < q", "False"}, Law{"q != q", "False"},
                      Law{"doc[q] == doc[q]", "True"}));

INSTANTIATE_TEST_SUITE_P(
    RealsKeepTheirZerosAndNaNs, SimplifyMask,
    ::testing::Values(Law{"slope * 0.0 < 1.0", "slope * 0.0 < 1.0"}, Law{"slope - slope < 1.0", "slope - slope < 1.0"},
                      Law{"1.0 / (slope + 0.0) < 1.0", "1.0 / (slope + 0.0) < 1.0"},
                      Law{"1.0 / (slope - 0.0) < 1.0", "1.0 / slope < 1.0"},
                      Law{"1.0 / (slope + -0.0) < 1.0", "1.0 / slope < 1.0"},
                      Law{"slope + 0.5 + 0.25 < 1.0", "slope + 0.5 + 0.25 < 1.0"},
                      Law{"slope == slope", "slope == slope"}, Law{"~(slope < 1.0)", "~(slope < 1.0)"},
                      Law{"~(slope == 1.0)", "slope != 1.0"}, Law{"-(slope - 1.0) < 0.5", "-(slope - 1.0) < 0.5"},
                      Law{"slope * 1.0 < 0.5", "slope < 0.5"}, Law{"slope / 1.0 < 0.5", "slope < 0.5"},
                      Law{"slope / 0.0 < 0.5", "True"}, Law{"min(1.0, slope) < 0.5", "min(1.0, slope) < 0.5"},
                      Law{"1.0 * slope < 0.5", "slope < 0.5"}));

INSTANTIATE_TEST_SUITE_P(
    Booleans, SimplifyMask,
    ::testing::Values(Law{"q < k and True", "q < k"}, Law{"False & (q < k)", "False"}, Law{"(q < k) | False", "q < k"},
                      Law{"(q < k) | True", "True"}, Law{"(q < k) & (q < k)", "q < k"}, Law{"not not q < k", "q < k"},
                      Law{"not q < k", "k <= q"}, Law{"not q <= k", "k < q"}, Law{"not q == k", "q != k"},
                      Law{"not q != k", "q == k"}, Law{"(doc[q] == 1) & (doc[q] == 1)", "doc[q] == 1"},
                      Law{"(slope < 1.0) & ~(slope < 1.0)", "False"}, Law{"(slope < 1.0) | ~(slope < 1.0)", "True"}));

INSTANTIATE_TEST_SUITE_P(Choices, SimplifyMask,
                         ::testing::Values(Law{"where(True, q, k) < b", "q < b"},
                                           Law{"where(1 < 0, q, k) < b", "k < b"},
                                           Law{"where(q < k, b, b) < h", "b < h"},
                                           Law{"where(not slope < 1.0, q, k) < b", "where(slope < 1.0, k, q) < b"},
                                           Law{"where(q < k, True, b < h)", "(b < h) | (q < k)"},
                                           Law{"where(q < k, b < h, False)", "(b < h) & (q < k)"},
                                           Law{"where(q < k, False, b < h)", "(b < h) & (k <= q)"},
                                           Law{"where(q < k, b < h, True)", "(b < h) | (k <= q)"},
                                           Law{"where(q < k, True, False)", "q < k"}));

INSTANTIATE_TEST_SUITE_P(
    Loops, SimplifyMask,
    ::testing::Values(Law{"any(doc[r] == k for r in range(5, 3))", "False"},
                      Law{"any(doc[r] == k for r in range(3, 3))", "False"},
                      Law{"any(doc[r] == k for r in range(q, q))", "False"},
                      Law{"any(q < k for r in range(left))", "(q < k) & (0 < left)"},
                      Law{"any(q < k for r in range(4))", "q < k"}, Law{"any(r < r for r in range(left))", "False"},
                      Law{"any(any(r < k for s in range(2)) for r in range(3))", "any(r0 < k for r0 in range(0, 3))"}));

INSTANTIATE_TEST_SUITE_P(Order, SimplifyMask,
                         ::testing::Values(Law{"0 == k % 2", "k % 2 == 0"}, Law{"k == q", "q == k"},
                                           Law{"(q < k) & (b < h)", "(b < h) & (q < k)"}, Law{"k + q < 1", "q + k < 1"},
                                           Law{"max(1, left, q) < k", "max(left, 1, q) < k"},
                                           Law{"q * (k + 1) < b", "(k + 1) * q < b"},
                                           Law{"doc[k] == doc[q]", "doc[q] == doc[k]"}));

TEST(Simplify, ProgramsThatDifferInOrderBecomeOne) {
  const Program one = simplify(parsed("(doc[k] == doc[q]) & (k <= q) & (left >= q - k)"));
  const Program other = simplify(parsed("(k <= q) & (doc[q] == doc[k]) & (q - k <= left)"));
  EXPECT_EQ(simplify(parsed("(q >= k) & (doc[q] == doc[k])")).to_signature(),
            simplify(parsed("(doc[k] == doc[q]) & (k <= q)")).to_signature());
  EXPECT_EQ(one.scalars(), other.scalars());
}

TEST(Simplify, DeclarationsThatNoLongerMatterAreDropped) {
  EXPECT_EQ(simplify(parsed("(doc[q] * 0 == 0) & (q < k)")).to_signature(), "q < k");
  EXPECT_EQ(simplify(parsed("(doc[q] * 0 == 0) & (q < k)"), Declarations::keep_all).to_signature(),
            "doc: i32[1]; q < k");
}

TEST(Simplify, LongChainsStayFlatAndReadable) {
  std::string text = "q";
  for (int i = 0; i < 3000; ++i) text.append(" + k * ").append(std::to_string(i));
  const Program simple = simplify(parsed(text + " < 5"));
  EXPECT_TRUE(Program::from_signature(simple.to_signature()));
}

}  // namespace
}  // namespace flashspan::mask::test
