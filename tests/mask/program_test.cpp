// program_test.cpp -- nodes, identity and dependencies of programs.
#include "codegen/mask/program.hpp"

#include <gtest/gtest.h>

#include "codegen/mask/rebuild.hpp"
#include "tests/mask/parsed.hpp"

namespace flashspan::mask::test {
namespace {

TEST(Program, EqualSubexpressionsAreOneNode) {
  const Program program = parsed("(q - k < 3) | (q - k > 7)");
  int differences = 0;
  for (const Node& node : program.nodes()) differences += node.op == Op::subtract ? 1 : 0;
  EXPECT_EQ(differences, 1);
}

TEST(Program, ZerosOfBothSignsStayApart) {
  Program program;
  EXPECT_NE(program.real(0.0), program.real(-0.0));
  EXPECT_EQ(program.real(-0.0), program.real(-0.0));
}

TEST(Program, RealConstantsAreRoundedToBinary32) {
  Program program;
  EXPECT_EQ(program.node(program.real(0.1)).real, static_cast<double>(0.1f));
}

TEST(Program, OperandsStandBeforeTheirUsers) {
  const Program program = parsed("any((lo[b, r] <= k) & (k < lo[h, r]) for r in range(q, left)) & (doc[q] == doc[k])");
  for (NodeId id = 0; id < static_cast<NodeId>(program.nodes().size()); ++id) {
    for (const NodeId operand : program.node(id).operands) EXPECT_LT(operand, id);
  }
}

TEST(Program, SignatureHoldsDeclarationsAndText) {
  EXPECT_EQ(parsed("(q >= k) & (doc[q] == doc[k]) & (q - k <= left)").to_signature(),
            "doc: i32[1]; left: int; (k <= q) & (doc[q] == doc[k]) & (q - k <= left)");
  EXPECT_EQ(parsed("score + slope * bias[q, k]", ProgramKind::score).to_signature(),
            "bias: f16[2]; slope: real; score + slope * bias[q, k]");
}

TEST(Program, SignatureKeepsDeclarationsThatTheTextDoesNotUse) {
  const std::string signature = "doc: i32[1]; bias: bf16[5]; left: int; slope: real; score * 2.0";
  const auto program = Program::from_signature(signature);
  ASSERT_TRUE(program) << program.error().message();
  EXPECT_EQ(program->to_signature(), signature);
  EXPECT_EQ(program->tensors().size(), 2U);
  EXPECT_EQ(program->tensors()[1].dtype, DType::bf16);
  EXPECT_EQ(program->tensors()[1].rank, 5);
}

TEST(Program, AnExtremumOfManyIsWrittenAsOneAndReadAgain) {
  EXPECT_EQ(parsed("max(q, 1, k) <= min(kv_len, q_len)").to_signature(), "max(q, 1, k) <= min(kv_len, q_len)");
  EXPECT_EQ(parsed("max(q, max(1, k)) <= 5").to_signature(), "max(q, max(1, k)) <= 5");
  std::string text = "max(k";
  for (int number = 1; number < 1000; ++number) text += ", q - " + std::to_string(number);
  const std::string signature = parsed(text + ") <= 5").to_signature();
  const auto program = Program::from_signature(signature);
  ASSERT_TRUE(program) << program.error().message();
  EXPECT_EQ(program->to_signature(), signature);
}

TEST(Program, BadSignaturesAreRefused) {
  for (const char* signature :
       {"", "doc; q < k", "doc: i32; q < k", "doc: i32[; q < k", "doc: i32[x]; q < k", "doc: i8[1]; q < k",
        "left: bool; q < k", "q < ", "q: int; q < k", "doc: i32[9]; q < k"}) {
    EXPECT_FALSE(Program::from_signature(signature)) << signature;
  }
}

TEST(Program, NegatedConstantsAreNotNegativeConstants) {
  Program program;
  program.set_root(program.binary(Op::less, program.unary(Op::negate, program.integer(1)), program.integer(-1)));
  EXPECT_EQ(program.to_text(), "-(1) < -1");
  EXPECT_EQ(parsed("-(1) < -1").nodes(), rebuild(program, Declarations::keep_all).nodes());
}

TEST(Program, DependenciesAreTheVariablesUsed) {
  EXPECT_EQ(parsed("doc[q] == 3").dependencies(), set_of(Variable::q));
  EXPECT_EQ(parsed("(b < h) | (q_len < kv_len)").dependencies(),
            set_of(Variable::b) | set_of(Variable::h) | set_of(Variable::q_len) | set_of(Variable::kv_len));
  EXPECT_EQ(parsed("any(doc[r] < q for r in range(k))").dependencies(), set_of(Variable::q) | set_of(Variable::k));
  EXPECT_EQ(parsed("left < 3").dependencies(), 0U);
  EXPECT_EQ(parsed("score + k", ProgramKind::score).dependencies(), set_of(Variable::score) | set_of(Variable::k));
}

TEST(Program, FreeLoopsAreThoseAroundANode) {
  const Program program = parsed("any(any(lo[r, s] == k for s in range(r, 9)) for r in range(4))");
  const auto loops = program.free_loops_by_node();
  EXPECT_TRUE(loops[static_cast<std::size_t>(program.root())].empty());
  const Node& outer = program.node(program.root());
  const NodeId inner_id = outer.operands[2];
  EXPECT_EQ(loops[static_cast<std::size_t>(inner_id)], std::vector<int>{outer.symbol});
  const Node& inner = program.node(inner_id);
  EXPECT_EQ(loops[static_cast<std::size_t>(inner.operands[2])].size(), 2U);
  EXPECT_EQ(loops[static_cast<std::size_t>(inner.operands[0])], std::vector<int>{outer.symbol});
  EXPECT_NE(inner.symbol, outer.symbol);
  EXPECT_EQ(program.fresh_loop(), 2);
}

TEST(Program, RebuildingDropsDeadNodesAndUnusedDeclarations) {
  Program program({{.name = "left", .type = ValueType::integer}}, {{.name = "doc", .dtype = DType::i32, .rank = 1}});
  program.integer(77);
  program.set_root(program.binary(Op::less, program.variable(Variable::q), program.variable(Variable::k)));
  const Program dropped = rebuild(program, Declarations::drop_unused);
  EXPECT_EQ(dropped.nodes().size(), 3U);
  EXPECT_EQ(dropped.to_signature(), "q < k");
  EXPECT_EQ(rebuild(program, Declarations::keep_all).to_signature(), "doc: i32[1]; left: int; q < k");
}

}  // namespace
}  // namespace flashspan::mask::test
