// parser_test.cpp -- what the language accepts, what it means, and where it points when it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/mask/parsed.hpp"

namespace flashspan::mask::test {
namespace {

using ::testing::HasSubstr;

std::string canonical(const std::string& text, ProgramKind kind = ProgramKind::mask) {
  return parsed(text, kind).to_text();
}

TEST(Parser, ComparisonsAreWrittenWithLessAndLessEqual) {
  EXPECT_EQ(canonical("q >= k"), "k <= q");
  EXPECT_EQ(canonical("q > k"), "k < q");
  EXPECT_EQ(canonical("q <= k"), "q <= k");
  EXPECT_EQ(canonical("q < k"), "q < k");
  EXPECT_EQ(canonical("q == k"), "q == k");
  EXPECT_EQ(canonical("q != k"), "q != k");
}

TEST(Parser, ChainedComparisonsBecomeAnAnd) {
  EXPECT_EQ(canonical("0 <= q - k < left"), "(0 <= q - k) & (q - k < left)");
  EXPECT_EQ(canonical("b < h < q < k"), "(b < h) & (h < q) & (q < k)");
}

TEST(Parser, PrecedenceIsPythons) {
  EXPECT_EQ(canonical("q + k * 2 == b"), "q + k * 2 == b");
  EXPECT_EQ(canonical("(q + k) * 2 == b"), "(q + k) * 2 == b");
  EXPECT_EQ(canonical("q - k - 1 == b"), canonical("(q - k) - 1 == b"));
  EXPECT_EQ(canonical("q - (k - 1) == b"), "q - (k - 1) == b");
  EXPECT_EQ(canonical("q // k * b % 3 == h"), canonical("((q // k) * b) % 3 == h"));
  EXPECT_EQ(canonical("-q // 2 == k"), canonical("(-q) // 2 == k"));
  EXPECT_EQ(canonical("-q * k == b"), canonical("(-q) * k == b"));
  EXPECT_EQ(canonical("not q < k and b == h"), canonical("(not (q < k)) and (b == h)"));
  EXPECT_EQ(canonical("q < k or b < h and q < h"), canonical("(q < k) or ((b < h) and (q < h))"));
  EXPECT_EQ(canonical("(q < k) | (b < h) & (q < h)"), canonical("(q < k) | ((b < h) & (q < h))"));
  EXPECT_EQ(canonical("~(q < k) & (b < h)"), canonical("(~(q < k)) & (b < h)"));
  EXPECT_EQ(canonical("(q < k) | (b < h) and (q < h)"), canonical("((q < k) | (b < h)) and (q < h)"));
  EXPECT_EQ(canonical("q < k if b < h else q < h or q < b"), canonical("where(b < h, q < k, (q < h) or (q < b))"));
  EXPECT_EQ(canonical("q < 1 if b < 1 else q < 2 if b < 2 else q < 3"),
            canonical("where(b < 1, q < 1, where(b < 2, q < 2, q < 3))"));
}

TEST(Parser, WordsAndSymbolsMeanTheSame) {
  EXPECT_EQ(canonical("q < k and not b < h or q == b"), canonical("(q < k) & ~(b < h) | (q == b)"));
}

TEST(Parser, MinimumAndMaximumTakeManyArguments) {
  EXPECT_EQ(canonical("min(q, k, b) < max(h, 1)"), "min(q, k, b) < max(h, 1)");
}

TEST(Parser, EqualityOfBooleansIsAChoice) {
  EXPECT_EQ(canonical("(q < 3) == (k < 4)"), "where(q < 3, k < 4, ~(k < 4))");
  EXPECT_EQ(canonical("(q < 3) != (k < 4)"), "where(q < 3, ~(k < 4), k < 4)");
}

TEST(Parser, NumbersAreReadExactly) {
  EXPECT_EQ(canonical("q < 1_000"), "q < 1000");
  EXPECT_EQ(canonical("q < 0xFF"), "q < 255");
  EXPECT_EQ(canonical("q < 0x7fff_ffff_ffff_ffff"), "q < 9223372036854775807");
  EXPECT_EQ(canonical("q < -9223372036854775808"), "q < -9223372036854775808");
  EXPECT_EQ(canonical("q == -0"), "q == 0");
  EXPECT_EQ(canonical("slope < .5"), "slope < 0.5");
  EXPECT_EQ(canonical("slope < 5."), "slope < 5.0");
  EXPECT_EQ(canonical("slope < 1_0.2_5e+1_0"), "slope < 1.025e+11");
  EXPECT_EQ(canonical("slope < -0.0"), "slope < -0.0");
  EXPECT_EQ(canonical("slope < 3.4028235e38"), "slope < 3.4028235e+38");
  EXPECT_EQ(canonical("slope < 1e-400"), "slope < 0.0");
}

TEST(Parser, RealsAreRoundedOnceToBinary32) {
  // Halfway between two binary32 values, plus less than binary64 can hold: rounding twice would go down.
  const Program program = parsed("score + 1.00000005960464477540", ProgramKind::score);
  const Node& sum = program.node(program.root());
  EXPECT_EQ(program.node(sum.operands[1]).real, 1.0 + 0x1p-23);
}

TEST(Parser, IntegersBecomeRealsWhereTheyMeetReals) {
  EXPECT_EQ(canonical("score * q + 1", ProgramKind::score), "score * float(q) + float(1)");
  EXPECT_EQ(canonical("q / k", ProgramKind::score), "float(q) / float(k)");
  EXPECT_EQ(canonical("where(q < k, score, 0)", ProgramKind::score), "where(q < k, score, float(0))");
  EXPECT_EQ(canonical("max(q, score, k)", ProgramKind::score), "max(float(q), score, float(k))");
  EXPECT_EQ(canonical("slope < q"), "slope < float(q)");
  EXPECT_EQ(canonical("tanh(q)", ProgramKind::score), "tanh(float(q))");
  EXPECT_EQ(canonical("float(score)", ProgramKind::score), "score");
  EXPECT_EQ(canonical("q", ProgramKind::score), "float(q)");
}

TEST(Parser, LoopsAreNamedByTheirDepth) {
  EXPECT_EQ(canonical("any(doc[x] == k for x in range(q))"), "any(doc[r0] == k for r0 in range(0, q))");
  EXPECT_EQ(canonical("any(any(lo[i, j] == k for j in range(i, q)) for i in range(3, 9))"),
            "any(any(lo[r0, r1] == k for r1 in range(r0, q)) for r0 in range(3, 9))");
  EXPECT_EQ(canonical("any(doc[x] == k for x in range(4)) | any(doc[x] == q for x in range(4))"),
            "any(doc[r0] == k for r0 in range(0, 4)) | any(doc[r0] == q for r0 in range(0, 4))");
}

TEST(Parser, LoopNamesAvoidDeclaredNames) {
  const Program program =
      parsed_with("any(r0[x] == k for x in range(q))", {}, {{.name = "r0", .dtype = DType::i32, .rank = 1}});
  EXPECT_EQ(program.to_text(), "any(r0[r1] == k for r1 in range(0, q))");
}

TEST(Parser, UnusedDeclarationsAreDropped) {
  const Program program = parsed("(q - k <= left) & (lo[b, q] <= k)");
  ASSERT_EQ(program.scalars().size(), 1U);
  EXPECT_EQ(program.scalars()[0].name, "left");
  ASSERT_EQ(program.tensors().size(), 1U);
  EXPECT_EQ(program.tensors()[0].name, "lo");
}

TEST(Parser, LineEndsAndTabsAreBlanks) { EXPECT_EQ(canonical("\n q\t>=\r\n  k\n"), "k <= q"); }

TEST(Parser, SourceIsKept) { EXPECT_EQ(parsed("q  >=  k").source(), "q  >=  k"); }

struct Refusal {
  const char* text;
  std::size_t column;  // of the caret, from 0
  const char* got;
  const char* takes;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.text; }

class ParserRefuses : public ::testing::TestWithParam<Refusal> {};

TEST_P(ParserRefuses, PointingAtTheColumn) {
  const Refusal& refusal = GetParam();
  const auto program = parse_usual(refusal.text);
  ASSERT_FALSE(program) << program->to_text();
  const Error& error = program.error();
  EXPECT_EQ(error.code, ErrorCode::bad_expression);
  EXPECT_EQ(error.argument, "mask");
  EXPECT_THAT(error.got, HasSubstr(refusal.got));
  EXPECT_THAT(error.takes, HasSubstr(refusal.takes));
  EXPECT_EQ(error.detail, std::string(refusal.text) + "\n" + std::string(refusal.column, ' ') + "^");
}

INSTANTIATE_TEST_SUITE_P(
    Types, ParserRefuses,
    ::testing::Values(Refusal{"q >= k & doc[q] == doc[k]", 7, "'&' between int and int", "write (a >= b) & (c == d)"},
                      Refusal{"q | 1 == k", 2, "'|' between int and int", "no operations on bits"},
                      Refusal{"(q < k) & b", 8, "'&' between bool and int", "two bools"},
                      Refusal{"~q == k", 0, "'~' of int", "logical not"}, Refusal{"not q", 0, "'not' of int", "a bool"},
                      Refusal{"q and k < 2", 2, "'and' between int and bool", "two bools"},
                      Refusal{"(q < k) + 1 == 2", 8, "'+' between bool and int", "where(condition, 1, 0)"},
                      Refusal{"-(q < k) == 2", 0, "'-' of a bool", "a number"},
                      Refusal{"(q < k) < (b < h)", 8, "'<' between bool and bool", "two numbers"},
                      Refusal{"(q < k) == 1", 8, "'==' between bool and int", "two numbers"},
                      Refusal{"slope // 2 < 1", 6, "'//' between real and int", "two ints"},
                      Refusal{"1 % slope < 1", 2, "'%' between int and real", "two ints"},
                      Refusal{"where(q, k < 1, b < 1)", 0, "a condition of type int", "a bool"},
                      Refusal{"where(q < k, 1, b < 1)", 0, "a choice between int and bool", "two bools or two numbers"},
                      Refusal{"doc[slope] == 1", 0, "an index of type real", "an int"},
                      Refusal{"doc[q < k] == 1", 0, "an index of type bool", "an int"},
                      Refusal{"min(q < k, 1) < 2", 0, "'min' between bool and int", "numbers"},
                      Refusal{"exp(q < k) < 2", 0, "'exp' of a bool", "a number"},
                      Refusal{"any(r for r in range(3))", 0, "a condition of type int", "a bool"},
                      Refusal{"any(r < k for r in range(slope))", 0, "a range of int and real", "ints"},
                      Refusal{"q + k", 0, "an expression of type int", "a bool"},
                      Refusal{"  slope", 2, "an expression of type real", "a bool"}));

INSTANTIATE_TEST_SUITE_P(
    Names, ParserRefuses,
    ::testing::Values(
        Refusal{"q - k <= lefft", 9, "unknown name 'lefft'", "did you mean 'left'?"},
        Refusal{"docs[q] == 1", 0, "unknown name 'docs'", "did you mean 'doc'?"},
        Refusal{"q_idx >= k", 0, "unknown name 'q_idx'", "did you mean 'q'?"},
        Refusal{"q >= kv_idx", 5, "unknown name 'kv_idx'", "did you mean 'k'?"},
        Refusal{"Q >= k", 0, "unknown name 'Q'", "did you mean 'q'?"},
        Refusal{"true", 0, "unknown name 'true'", "did you mean 'True'?"},
        Refusal{"zebra < k", 0, "unknown name 'zebra'", "b, h, q, k, q_len, kv_len, left, slope, doc, lo, bias"},
        Refusal{"minimum(q, k) < 1", 0, "unknown name 'minimum'", "did you mean 'min'?"},
        Refusal{"score < 1", 0, "'score'", "only a score program"},
        Refusal{"doc == 1", 0, "tensor 'doc' without an index", "1 index in brackets"},
        Refusal{"doc[q, k] == 1", 0, "'doc' with 2 indices", "1 index"},
        Refusal{"lo[q] == 1", 0, "'lo' with 1 indices", "2 indices"},
        Refusal{"doc[] == 1", 0, "'doc' with 0 indices", "1 index"},
        Refusal{"left[q] < 1", 4, "'['", "an operator or the end"},
        Refusal{"min < 1", 0, "function 'min' without arguments", "min(...)"},
        Refusal{"min(q) < 1", 0, "min with 1 arguments", "at least 2"},
        Refusal{"abs(q, k) < 1", 0, "abs with 2 arguments", "exactly 1"},
        Refusal{"where(q < k, 1) < 1", 0, "where with 2 arguments", "exactly 3"},
        Refusal{"any(q < k)", 0, "'any' without a loop", "any(condition for r in range(begin, end))"},
        Refusal{"any(r < k for r in doc)", 19, "'doc'", "range(begin, end)"},
        Refusal{"any(r < k for r in range())", 25, "range with 0 arguments", "range(end)"},
        Refusal{"any(r < k for r in range(1, 2, 3))", 25, "range with 3 arguments", "range(end)"},
        Refusal{"any(r < k for q in range(3))", 14, "loop name 'q'", "nothing else has"},
        Refusal{"any(r < k for doc in range(3))", 14, "loop name 'doc'", "nothing else has"},
        Refusal{"any(r < k for r in range(r))", 25, "unknown name 'r'", "b, h, q, k"},
        Refusal{"any(any(r < k for r in range(3)) for r in range(3))", 18, "loop name 'r'", "nothing else has"},
        Refusal{"any(r < k for r in range(3)) & (r < 2)", 32, "unknown name 'r'", "b, h, q, k"},
        Refusal{"any(r < k for r in range(3) if q < k)", 28, "'if'", "')' behind the range"}));

INSTANTIATE_TEST_SUITE_P(
    Grammar, ParserRefuses,
    ::testing::Values(
        Refusal{"", 0, "end of text", "a number, a name or '('"}, Refusal{"q >=", 4, "end of text", "a number"},
        Refusal{"q >= k)", 6, "')'", "an operator or the end"}, Refusal{"(q >= k", 7, "end of text", "')'"},
        Refusal{"q = k", 2, "'='", "'==' to compare"}, Refusal{"q < k && b < h", 6, "'&&'", "'&' or 'and'"},
        Refusal{"q < k || b < h", 6, "'||'", "'|' or 'or'"}, Refusal{"!(q < k)", 0, "'!'", "'~' or 'not'"},
        Refusal{"q < k ? b < h", 6, "'?'", "where(condition, a, b)"},
        Refusal{"q ^ k == 1", 2, "'^'", "no operations on bits"},
        Refusal{"q << 1 < k", 2, "'<<'", "no operations on bits"},
        Refusal{"q ** 2 < k", 2, "'**'", "no power operator"}, Refusal{"q is k", 2, "'is'", "'==' to compare"},
        Refusal{"doc[1:2] == 1", 5, "':'", "no slices"}, Refusal{"q < k if b < h", 14, "end of text", "'else'"},
        Refusal{"q < not k", 4, "'not'", "a number, a name or '('"},
        Refusal{"q < 3 k < 4", 6, "'k'", "an operator or the end"}, Refusal{"+q < k", 0, "'+'", "a number"},
        Refusal{"q < 9223372036854775808", 4, "'9223372036854775808'", "64 bits"},
        Refusal{"q < -9223372036854775809", 5, "'9223372036854775809'", "64 bits"},
        Refusal{"q < 0xffff_ffff_ffff_ffff", 4, "0xffff", "64 bits"},
        Refusal{"slope < 1e39", 8, "number '1e39'", "3.4e38"}, Refusal{"slope < 1e999", 8, "1e999", "3.4e38"},
        Refusal{"q < 017", 4, "number '017'", "numbers such as"},
        Refusal{"q < 12ab", 4, "number '12ab'", "numbers such as"},
        Refusal{"q < 1__0", 4, "number '1__0'", "numbers such as"},
        Refusal{"q < 1e", 4, "number '1e'", "numbers such as"},
        Refusal{"q < 1.2.3", 4, "number '1.2.3'", "numbers such as"},
        Refusal{"q < 0x", 4, "number '0x'", "numbers such as"}, Refusal{"q < \"k\"", 4, "character '\"'", "operators"},
        Refusal{"q $ k", 2, "character '$'", "operators"},
        Refusal{"q \xe2\x89\xa5 k", 2, "character '\xe2\x89\xa5'", "operators"},
        Refusal{"q.x < 1", 1, "'.'", "an operator"}, Refusal{"(q, k) < 1", 2, "','", "')'"}));

TEST(Parser, CaretStandsInItsOwnLine) {
  const auto program = parse_usual("(q >= k) &\n\t(dok[q] == 1)\n & (k < 2)");
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().detail, "\t(dok[q] == 1)\n\t ^");
}

TEST(Parser, CaretCountsCharactersAndNotBytes) {
  const auto program = parse_usual("q < k \xc3\xa9\xc3\xa9");
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().detail, "q < k \xc3\xa9\xc3\xa9\n      ^");
}

TEST(Parser, ScoreErrorsNameTheScore) {
  const auto program = parse_usual("q < k", ProgramKind::score);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().argument, "score");
  EXPECT_THAT(program.error().takes, HasSubstr("a number"));
}

TEST(Parser, BadDeclarationsAreRefused) {
  const auto message = [](const std::vector<ScalarDeclaration>& scalars,
                          const std::vector<TensorDeclaration>& tensors) {
    const auto program = parse("q < k", ProgramKind::mask, scalars, tensors);
    return program ? std::string("accepted") : program.error().message();
  };
  EXPECT_EQ(message({{.name = "q", .type = ValueType::integer}}, {}),
            "scalar: got the reserved name 'q'; takes a name of its own");
  EXPECT_EQ(message({{.name = "any", .type = ValueType::integer}}, {}),
            "scalar: got the reserved name 'any'; takes a name of its own");
  EXPECT_EQ(message({}, {{.name = "min", .dtype = DType::i32, .rank = 1}}),
            "tensor: got the reserved name 'min'; takes a name of its own");
  EXPECT_THAT(message({{.name = "2x", .type = ValueType::integer}}, {}), HasSubstr("the name '2x'"));
  EXPECT_THAT(message({{.name = "", .type = ValueType::integer}}, {}), HasSubstr("the name ''"));
  EXPECT_EQ(message({{.name = "a", .type = ValueType::integer}}, {{.name = "a", .dtype = DType::i32, .rank = 1}}),
            "tensor: got the name 'a' twice; takes every name once");
  EXPECT_EQ(message({{.name = "a", .type = ValueType::boolean}}, {}), "a: got a bool scalar; takes an int or a real");
  EXPECT_EQ(message({}, {{.name = "a", .dtype = DType::i32, .rank = 6}}), "a: got 6 axes; takes 1 to 5 axes");
  EXPECT_EQ(message({}, {{.name = "a", .dtype = DType::i32, .rank = 0}}), "a: got 0 axes; takes 1 to 5 axes");
}

std::string repeated(const std::string& part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

TEST(Parser, DeepNestingIsAnErrorAndNotACrash) {
  for (const std::string opening : {"(", "~", "not ", "-", "abs(", "doc[", "any(", "q < k if "}) {
    const auto program = parse_usual(repeated(opening, 10000));
    ASSERT_FALSE(program) << opening;
  }
  EXPECT_THAT(parse_usual(repeated("(", 201) + "q").error().got, HasSubstr("200 nested levels"));
  EXPECT_TRUE(parse_usual(repeated("(", 150) + "q < k" + repeated(")", 150)));
}

TEST(Parser, LongChainsAreNotDeep) {
  const Program program = parsed("q" + repeated(" + k", 10000) + " < 5");
  const auto read = Program::from_signature(program.to_signature());
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->nodes().size(), program.nodes().size());
}

TEST(Parser, ExplosiveChainsOfComparisonsAreRefused) {
  std::string text = "q";
  for (int level = 0; level < 30; ++level) text.insert(0, "where(0 < ").append(" < 9, 1, 2)");
  const auto program = parse_usual(text + " < 2");
  ASSERT_FALSE(program);
  EXPECT_THAT(program.error().got, HasSubstr("65536 operations"));
}

TEST(Parser, VeryLongTextIsRefused) {
  EXPECT_THAT(parse_usual(repeated(" ", 70000) + "q < k").error().got, HasSubstr("70005 bytes"));
}

TEST(Parser, AnythingAtAllIsEitherReadOrRefused) {
  const std::vector<std::string> parts = {
      "q",  "k", "doc", "[",   "]",     "(", ")",   ",",  "<",    ">=",    "==",   "&",   "|",    "~",     "-",
      "+",  "*", "//",  "%",   "/",     "1", "2.5", "if", "else", "or",    "and",  "not", "any",  "range", "for",
      "in", "r", "lo",  "min", "where", " ", "\n",  "0x", "1e",   "score", "True", ".",   "\xff", "left"};
  std::mt19937_64 random(11);
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (std::uint64_t length = random() % 12; length > 0; --length) text += parts[random() % parts.size()] + " ";
    for (const ProgramKind kind : {ProgramKind::mask, ProgramKind::score}) {
      const auto program = parse_usual(text, kind);
      if (program) {
        ++accepted;
        EXPECT_EQ(parse_usual(program->to_text(), kind)->to_signature(), program->to_signature()) << text;
      } else {
        EXPECT_EQ(program.error().code, ErrorCode::bad_expression);
        EXPECT_FALSE(program.error().got.empty()) << text;
        EXPECT_FALSE(program.error().takes.empty()) << text;
      }
    }
  }
  EXPECT_GT(accepted, 5);
}

TEST(Parser, DamagedLegalTextIsEitherReadOrRefused) {
  const std::string legal =
      "any(lo[b, r] <= k < lo[h, r + 1] for r in range(0, left)) & (doc[q] == doc[k]) | (q - k < 0x1f)";
  std::mt19937_64 random(12);
  for (int round = 0; round < 5000; ++round) {
    std::string text = legal;
    for (int edit = 0; edit < 2; ++edit) {
      const std::size_t place = random() % text.size();
      if (random() % 2 == 0) {
        text.erase(place, random() % 4);
      } else {
        text[place] = static_cast<char>(random() % 256);
      }
    }
    const auto program = parse_usual(text);
    if (!program) {
      EXPECT_THAT(program.error().detail, HasSubstr("^"));
    }
  }
}

}  // namespace
}  // namespace flashspan::mask::test
