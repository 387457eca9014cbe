// named_masks_test.cpp -- every named mask against double loops written from its definition, and its call syntax.
#include "codegen/mask/named_masks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <random>

#include "codegen/mask/evaluate.hpp"
#include "codegen/mask/parser.hpp"
#include "codegen/mask/simplify.hpp"
#include "codegen/mask/strip_evaluator.hpp"
#include "tests/mask/parsed.hpp"

namespace flashspan::mask::test {
namespace {

using ::testing::HasSubstr;
using Tensors = std::map<std::string, std::vector<std::int32_t>>;

struct Shape {
  std::int64_t q_len, kv_len;
};

// A named mask with its program and data.
struct BoundMask {
  Program program;
  Bindings bindings;
};

Program program_of(const NamedMask& mask) {
  std::vector<ScalarDeclaration> scalars(mask.arguments.size());
  for (std::size_t place = 0; place < scalars.size(); ++place) scalars[place].name = mask.arguments[place].name;
  return simplify(parsed_with(mask.text, scalars, mask.tensors));
}

BoundMask bound(const std::string& call_text, Tensors& tensors) {
  const auto call = parse_named_mask(call_text);
  EXPECT_TRUE(call) << (call ? "" : call.error().message());
  if (!call || !call->has_value()) {
    ADD_FAILURE() << call_text << " is not a named mask";
    return {.program = parsed("False"), .bindings = {}};
  }
  const NamedMask& mask = *(**call).mask;
  BoundMask result{.program = program_of(mask), .bindings = {}};
  for (const ScalarDeclaration& scalar : result.program.scalars()) {
    for (std::size_t place = 0; place < mask.arguments.size(); ++place) {
      if (mask.arguments[place].name == scalar.name) {
        result.bindings.scalars.push_back({.integer = (**call).values[place], .real = 0});
      }
    }
  }
  for (const TensorDeclaration& tensor : result.program.tensors()) {
    result.bindings.tensors.push_back(view_of(tensors.at(tensor.name)));
  }
  return result;
}

using Visible = std::function<bool(std::int64_t q, std::int64_t k)>;

void expect_mask(const std::string& call_text, Shape shape, const Visible& expected, Tensors tensors = {}) {
  const BoundMask mask = bound(call_text, tensors);
  for (std::int64_t q = 0; q < shape.q_len; ++q) {
    for (std::int64_t k = 0; k < shape.kv_len; ++k) {
      const Point point{.b = 0, .h = 0, .q = q, .k = k, .q_len = shape.q_len, .kv_len = shape.kv_len, .score = 0};
      ASSERT_EQ(evaluate_mask(mask.program, mask.bindings, point), expected(q, k))
          << call_text << " q " << q << " k " << k;
    }
  }
}

std::vector<std::int64_t> visible_per_row(const std::string& call_text, Shape shape, Tensors tensors = {}) {
  const BoundMask mask = bound(call_text, tensors);
  StripEvaluator evaluator(mask.program, mask.bindings, static_cast<int>(shape.kv_len));
  evaluator.set_head(0, 0, shape.q_len, shape.kv_len);
  std::vector<std::int64_t> counts;
  for (std::int64_t q = 0; q < shape.q_len; ++q) {
    evaluator.set_query(q);
    evaluator.evaluate(0, static_cast<int>(shape.kv_len));
    counts.push_back(0);
    for (int k = 0; k < shape.kv_len; ++k) counts.back() += evaluator.visible(k) ? 1 : 0;
  }
  return counts;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {{12, 12}, {5, 13}, {13, 5}, {1, 9}, {1, 1}};
  return all;
}

TEST(NamedMasks, PositionalMasksAreTheirDefinitions) {
  for (const Shape shape : shapes()) {
    const auto p = [=](std::int64_t q) { return q + shape.kv_len - shape.q_len; };
    expect_mask("full", shape, [](auto, auto) { return true; });
    expect_mask("causal", shape, [&](auto q, auto k) { return k <= p(q); });
    expect_mask("causal(top_left=1)", shape, [](auto q, auto k) { return k <= q; });
    expect_mask("window", shape, [](auto, auto) { return true; });
    expect_mask("window(left=2, right=1)", shape, [&](auto q, auto k) { return p(q) - 2 <= k && k <= p(q) + 1; });
    expect_mask("window(right=0)", shape, [&](auto q, auto k) { return k <= p(q); });
    expect_mask("window(0)", shape, [&](auto q, auto k) { return k >= p(q); });
    expect_mask("causal_window(3)", shape, [&](auto q, auto k) { return k <= p(q) && p(q) - k <= 3; });
    expect_mask("sink_window(2, 3)", shape, [&](auto q, auto k) { return k <= p(q) && (p(q) - k <= 2 || k < 3); });
    expect_mask("global_window(left=1, right=2, globals=2)", shape,
                [&](auto q, auto k) { return (p(q) - 1 <= k && k <= p(q) + 2) || k < 2 || q < 2; });
    expect_mask("dilated_window(7, step=3)", shape,
                [&](auto q, auto k) { return k == p(q) || k == p(q) - 3 || k == p(q) - 6; });
    expect_mask("prefix_lm(4)", shape, [&](auto q, auto k) { return k <= p(q) || k < 4; });
    expect_mask("chunked(4)", shape, [&](auto q, auto k) {
      if (k > p(q)) return false;
      for (std::int64_t first = 0;; first += 4) {
        if (k >= first && k < first + 4) return p(q) >= first && p(q) < first + 4;
      }
    });
  }
}

TEST(NamedMasks, DocumentMasksAreTheirDefinitions) {
  const Shape shape{12, 12};
  const std::vector<std::int32_t> doc = {0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2};
  const auto same = [&](std::int64_t q, std::int64_t k) {
    return doc[static_cast<std::size_t>(q)] == doc[static_cast<std::size_t>(k)];
  };
  expect_mask("document", shape, same, {{"doc", doc}});
  expect_mask("causal_document", shape, [&](auto q, auto k) { return same(q, k) && k <= q; }, {{"doc", doc}});
  const std::vector<std::int32_t> prefix_end = {2, 2, 2, 2, 4, 4, 4, 10, 10, 10, 10, 10};
  expect_mask("prefix_lm_document", shape,
              [&](auto q, auto k) { return same(q, k) && (k <= q || k < prefix_end[static_cast<std::size_t>(q)]); },
              {{"doc", doc}, {"prefix_end", prefix_end}});
  const std::vector<std::int32_t> answer = {0, 0, 1, 2, 0, 1, 1, 0, 0, 1, 2, 2};
  expect_mask("shared_question", shape,
              [&](auto q, auto k) {
                const bool in_question = answer[static_cast<std::size_t>(k)] == 0;
                return same(q, k) && k <= q &&
                       (in_question || answer[static_cast<std::size_t>(k)] == answer[static_cast<std::size_t>(q)]);
              },
              {{"doc", doc}, {"answer", answer}});
  expect_mask("causal_blockwise(last_block=2)", shape, [&](auto q, auto k) { return k <= q && (same(q, k) || q >= 7); },
              {{"block", doc}});
}

TEST(NamedMasks, EveryNameIsTestedAboveAndDescribed) {
  EXPECT_EQ(named_masks().size(), 14U);
  for (const NamedMask& mask : named_masks()) {
    EXPECT_EQ(find_named_mask(mask.name), &mask);
    EXPECT_FALSE(mask.meaning.empty()) << mask.name;
    for (const NamedMaskArgument& argument : mask.arguments) EXPECT_FALSE(argument.meaning.empty()) << mask.name;
  }
  EXPECT_EQ(find_named_mask("nothing"), nullptr);
}

// "A window of 4 tokens" is left = 3; bounds are inclusive.
TEST(NamedMasks, WindowBoundsAreInclusive) {
  using Counts = std::vector<std::int64_t>;
  EXPECT_EQ(visible_per_row("window(left=3, right=0)", {8, 8}), (Counts{1, 2, 3, 4, 4, 4, 4, 4}));
  EXPECT_EQ(visible_per_row("window(left=4, right=0)", {8, 8}), (Counts{1, 2, 3, 4, 5, 5, 5, 5}));
  const Counts counts = visible_per_row("window(1024, 0)", {2048, 2048});
  for (std::size_t i = 0; i < counts.size(); ++i) {
    EXPECT_EQ(counts[i], static_cast<std::int64_t>(std::min<std::size_t>(i, 1024) + 1)) << i;
  }
}

TEST(NamedMasks, HugeWindowsDoNotOverflow) {
  for (const char* call : {"window(2147483647, 2147483647)", "window(9223372036854775807, 9223372036854775807)",
                           "window(1073741824, 1073741824)"}) {
    EXPECT_EQ(visible_per_row(call, {10, 4}), (std::vector<std::int64_t>(10, 4)));
    EXPECT_EQ(visible_per_row(call, {4, 10}), (std::vector<std::int64_t>(4, 10)));
  }
}

TEST(NamedMasks, WindowEdgesAndTilesThatHoldAPair) {
  std::vector<std::int64_t> ones(16, 1);
  std::vector<std::int64_t> growing;
  std::vector<std::int64_t> shrinking;
  for (std::int64_t i = 0; i < 16; ++i) {
    growing.push_back(i + 1);
    shrinking.push_back(16 - i);
  }
  EXPECT_EQ(visible_per_row("window(0, 0)", {16, 16}), ones);
  EXPECT_EQ(visible_per_row("window(right=0)", {16, 16}), growing);
  EXPECT_EQ(visible_per_row("window(left=0)", {16, 16}), shrinking);
  Tensors none;
  for (const std::string text :
       {"window(0, 0)", "window(right=0)", "window(left=0)", "window(3, 1)", "causal_window(5)"}) {
    const BoundMask mask = bound(text, none);
    for (std::int64_t q = 0; q < 16; q += 4) {
      for (std::int64_t k = 0; k < 16; k += 4) {
        const TileBounds tile{.b = {0, 0}, .h = {0, 0}, .q = {q, q + 3}, .k = {k, k + 3}, .q_len = 16, .kv_len = 16};
        std::int64_t visible = 0;
        const TileClass exact = classify_exactly(mask.program, mask.bindings, tile, &visible);
        // The analysis alone drops every tile that holds no pair: nothing is planned for nothing.
        EXPECT_EQ(classify(mask.program, mask.bindings, tile) == TileClass::empty, visible == 0)
            << text << q << " " << k;
        EXPECT_EQ(exact == TileClass::empty, visible == 0);
      }
    }
  }
}

TEST(NamedMasks, PositionsAreThirtyTwoBitWhateverTheLengths) {
  for (const NamedMask& mask : named_masks()) {
    const Program program = program_of(mask);
    const std::vector<Interval> ranges = value_ranges(program);
    for (std::size_t id = 0; id < ranges.size(); ++id) {
      const Op op = program.nodes()[id].op;
      if (op != Op::add && op != Op::subtract) continue;
      EXPECT_GE(ranges[id].lo, std::numeric_limits<std::int32_t>::min()) << mask.name;
      EXPECT_LE(ranges[id].hi, std::numeric_limits<std::int32_t>::max()) << mask.name;
    }
  }
}

TEST(NamedMaskCalls, BareNamesAndCallsAreRead) {
  const auto values = [](const std::string& text) {
    const auto call = parse_named_mask(text);
    EXPECT_TRUE(call && call->has_value()) << text;
    return (**call).values;
  };
  using Values = std::vector<std::int64_t>;
  EXPECT_EQ(values("causal"), Values{0});
  EXPECT_EQ(values(" full ( ) "), Values{});
  EXPECT_EQ(values("window"), (Values{max_sequence_length, max_sequence_length}));
  EXPECT_EQ(values("window(right = 1_000)"), (Values{max_sequence_length, 1000}));
  EXPECT_EQ(values("window(1, 2)"), (Values{1, 2}));
  EXPECT_EQ(values("window(right=2, left=1)"), (Values{1, 2}));
  EXPECT_EQ(values("sink_window(5, sinks=4,)"), (Values{5, 4}));
}

TEST(NamedMaskCalls, ExpressionsAreNotNamedMasks) {
  for (const char* text : {"q >= k", "causal & (q < 5)", "window(1) | window(2)", "(causal)", "doc[q] == doc[k]",
                           "True", "", "causality", "q $ k", "full.json"}) {
    const auto call = parse_named_mask(text);
    ASSERT_TRUE(call) << text;
    EXPECT_FALSE(call->has_value()) << text;
  }
}

struct BadCall {
  const char* text;
  const char* message;
};
void PrintTo(const BadCall& call, std::ostream* out) { *out << call.text; }

class BadNamedMaskCall : public ::testing::TestWithParam<BadCall> {};
TEST_P(BadNamedMaskCall, NamesTheArgument) {
  const auto call = parse_named_mask(GetParam().text);
  ASSERT_FALSE(call);
  EXPECT_EQ(call.error().message(), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Messages, BadNamedMaskCall,
    ::testing::Values(
        BadCall{"window(left=-3, right=0)", "left: got -3; takes 0 or more\nwindow(left=-3, right=0)\n            ^"},
        BadCall{"chunked(0)", "size: got 0; takes 1 or more\nchunked(0)\n        ^"},
        BadCall{"window(lefft=3)",
                "window: got unknown argument 'lefft'; takes left, right\nwindow(lefft=3)\n       ^"},
        BadCall{"window(1, 2, 3)", "window: got '3'; takes left, right\nwindow(1, 2, 3)\n             ^"},
        BadCall{"full(1)", "full: got '1'; takes no arguments\nfull(1)\n     ^"},
        BadCall{"window(left=1, 2)", "window: got '2'; takes left, right\nwindow(left=1, 2)\n               ^"},
        BadCall{"window(1, left=2)", "left: got two values; takes one\nwindow(1, left=2)\n          ^"},
        BadCall{"causal_window", "left: got nothing; takes an integer: keys before the query\ncausal_window\n^"},
        BadCall{"sink_window(4)", "sinks: got nothing; takes an integer: first keys, always seen\nsink_window(4)\n^"},
        BadCall{"window(left=x)", "left: got 'x'; takes an integer\nwindow(left=x)\n            ^"},
        BadCall{"window(left=1.5)", "left: got '1.5'; takes an integer\nwindow(left=1.5)\n            ^"},
        BadCall{"window(left=)", "left: got ')'; takes an integer\nwindow(left=)\n            ^"},
        BadCall{"window(left=9223372036854775808)",
                "left: got '9223372036854775808'; takes an integer\nwindow(left=9223372036854775808)\n            ^"},
        BadCall{"window(1 2)", "window: got '2'; takes ',' or ')'\nwindow(1 2)\n         ^"},
        BadCall{"window(1", "window: got end of text; takes ')' behind the arguments\nwindow(1\n        ^"}));

TEST(NamedMaskCalls, DamagedCallsAreEitherReadOrRefused) {
  std::mt19937_64 random(31);
  const std::string legal = "global_window(left=12, right=3, globals=4)";
  for (int round = 0; round < 5000; ++round) {
    std::string text = legal;
    for (int edit = 0; edit < 3 && !text.empty(); ++edit) {
      const std::size_t place = random() % text.size();
      if (random() % 2 == 0) {
        text.erase(place, random() % 6);
      } else {
        text[place] = "(),=-1a_ \n"[random() % 10];
      }
    }
    const auto call = parse_named_mask(text);
    if (!call) {
      EXPECT_THAT(call.error().detail, HasSubstr("^"));
    }
  }
}

}  // namespace
}  // namespace flashspan::mask::test
