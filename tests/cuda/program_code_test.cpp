// Programs as instructions: what fits, and what is refused. That the instructions mean the program is tested where they
// are carried out (tests/kernel/emulated_programs_test.cpp).
#include "runtime/cuda/program_code.hpp"

#include <gtest/gtest.h>

#include <string>

#include "codegen/mask/parser.hpp"
#include "codegen/mask/simplify.hpp"

namespace flashspan::cuda {
namespace {

using flashspan_device::Operation;

mask::Program parsed(const std::string& text) {
  const auto program = mask::parse(text, mask::ProgramKind::mask, {}, {{"t", DType::i32, 1}});
  EXPECT_TRUE(program) << program.error().message();
  return mask::simplify(*program);
}

TEST(ProgramCode, SlotsOfValuesThatAreNotNeededAreUsedAgain) {
  // 40 lookups, each needed for the next sum only.
  std::string text = "t[q]";
  for (int i = 1; i < 40; ++i) text += " + t[k + " + std::to_string(i) + "]";
  const auto program = mask::parse("k < (" + text + ")", mask::ProgramKind::mask, {}, {{"t", DType::i32, 1}});
  ASSERT_TRUE(program);
  EXPECT_FALSE(program_code(*program).has_value()) << "160 instructions";
  std::string shorter = "t[q]";
  for (int i = 1; i < 30; ++i) shorter += " + t[k + " + std::to_string(i) + "]";
  EXPECT_TRUE(program_code(parsed("k < (" + shorter + ")")).has_value());
}

TEST(ProgramCode, AProgramPastTheInterpretersRoomIsRefusedByWhatItNeeds) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += (i == 0 ? "" : " | ") + ("(k * " + std::to_string(i + 3) + " == q)");
  const auto refused = program_code(parsed(text));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_NE(refused.error().takes.find("128"), std::string::npos) << refused.error().takes;
}

TEST(ProgramCode, EndsWithItsResult) {
  const auto code = program_code(parsed("q >= k"));
  ASSERT_TRUE(code.has_value());
  EXPECT_EQ(code->instructions[0].operation, Operation::variable);
  EXPECT_EQ(code->instructions[2].operation, Operation::less_equal);
  EXPECT_EQ(code->instructions[3].operation, Operation::result);
  EXPECT_EQ(code->instructions[3].a, code->instructions[2].to);
}

}  // namespace
}  // namespace flashspan::cuda
