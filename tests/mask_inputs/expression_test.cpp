// Masks from text and by name, and their combinations, against double loops.
#include <gmock/gmock.h>

#include <algorithm>

#include "codegen/mask/named_masks.hpp"
#include "runtime/api/states.hpp"
#include "tests/mask_inputs/dense_mask.hpp"

namespace flashspan::testing {
namespace {

TEST(Expressions, TensorsAndScalarsAreBoundByName) {
  const AttentionShape shape = sizes(2, 2, 1, 10, 14);
  auto doc = random_tensor({2, 14}, 0, 3, 1);
  auto low = random_tensor({2, 10}, 0, 9, 2);
  // Given in another order than they are used in.
  const auto mask = Mask::parse("(doc[b, q + 2] == doc[b, k]) | ((k >= low[h, q]) & (k < low[h, q] + width))",
                                {{"low", low.view()}, {"doc", doc.view()}}, {{"width", std::int64_t{4}}});
  expect_visible(mask, shape, [&](auto b, auto h, auto q, auto k) {
    return doc.at({b, q + 2}) == doc.at({b, k}) || (k >= low.at({h, q}) && k < low.at({h, q}) + 4);
  });
}

TEST(Expressions, NamesInAreWhatAMaskOrScoreTakes) {
  const auto names = [](const std::string& text) { return names_in(text).value(); };
  EXPECT_THAT(names("(doc[b, q + 2] == doc[b, k]) & (k < low[h, q] + width)"),
              ::testing::ElementsAre("doc", "low", "width"));
  EXPECT_THAT(names("score + bias[h] * slope if q < q_len and not k == 2 else tanh(score)"),
              ::testing::ElementsAre("bias", "slope"));
  EXPECT_THAT(names("document"), ::testing::ElementsAre("doc"));
  EXPECT_THAT(names("window(left=3)"), ::testing::IsEmpty());
  EXPECT_THAT(names("causal"), ::testing::IsEmpty());
  EXPECT_EQ(names_in("q $ k").error().code, ErrorCode::bad_expression);
}

TEST(Expressions, AViewWithStridesReadsTheSameValues) {
  const AttentionShape shape = sizes(1, 1, 1, 9, 9);
  auto wide = random_tensor({9, 3}, 0, 2, 3);
  TensorView column = wide.view();
  column.rank = 1;
  column.strides[0] = 3;
  column.data = wide.values.data() + 1;
  expect_visible(Mask::parse("doc[q] == doc[k]", {{"doc", column}}), shape,
                 [&](auto, auto, auto q, auto k) { return wide.at({q, 1}) == wide.at({k, 1}); });
}

TEST(NamedMasks, CausalIsAlignedToTheLastKeyUnlessToldOtherwise) {
  for (const AttentionShape& shape : {sizes(1, 1, 1, 9, 9), sizes(1, 1, 1, 5, 12), sizes(1, 1, 1, 12, 5)}) {
    const std::int64_t shift = shape.kv_len - shape.q_len;
    expect_visible(Mask::causal(), shape, [&](auto, auto, auto q, auto k) { return k <= q + shift; });
    expect_visible(Mask::causal(true), shape, [](auto, auto, auto q, auto k) { return k <= q; });
    expect_visible(Mask::parse("causal"), shape, [&](auto, auto, auto q, auto k) { return k <= q + shift; });
    expect_visible(Mask::full(), shape, [](auto, auto, auto, auto) { return true; });
  }
}

// Field cases F045 and F048.
TEST(NamedMasks, WindowBoundsAreInclusiveAndMayBeMissing) {
  for (const AttentionShape& shape : {sizes(1, 1, 1, 16, 16), sizes(1, 1, 1, 10, 4)}) {
    const std::int64_t shift = shape.kv_len - shape.q_len;
    for (const auto& [left, right] : {std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>{3, 0},
                                      {0, 0},
                                      {std::nullopt, 0},
                                      {0, std::nullopt},
                                      {std::nullopt, std::nullopt},
                                      {2, 5}}) {
      expect_visible(Mask::window(left, right), shape, [&, l = left, r = right](auto, auto, auto q, auto k) {
        return (!l || k >= q + shift - *l) && (!r || k <= q + shift + *r);
      });
    }
  }
}

// Field case F047.
TEST(NamedMasks, AHugeWindowDoesNotOverflow) {
  const AttentionShape shape = sizes(1, 1, 1, 10, 4);
  for (std::int64_t bound :
       {std::int64_t{std::numeric_limits<std::int32_t>::max()}, std::numeric_limits<std::int64_t>::max()}) {
    expect_visible(Mask::window(bound, bound), shape, [](auto, auto, auto, auto) { return true; });
  }
}

TEST(NamedMasks, WindowsOfAnySizeAreOneProgram) {
  EXPECT_EQ(Mask::window(3, 0)->state().signature, Mask::window(1023, 7)->state().signature);
  EXPECT_EQ(Mask::window(3, 0)->state().signature, Mask::parse("window(left=9)")->state().signature);
}

TEST(NamedMasks, ADocumentMaskTakesItsTensorByName) {
  const AttentionShape shape = sizes(1, 2, 2, 12, 12);
  IntTensor doc({12}, {0, 0, 0, 1, 1, 2, 2, 2, 2, 5, 5, 0});
  expect_visible(Mask::parse("causal_document", {{"doc", doc.view()}}), shape,
                 [&](auto, auto, auto q, auto k) { return doc.at({q}) == doc.at({k}) && k <= q; });
}

TEST(NamedMasks, TheHelpHasALineForEachWithArgumentsAndTensors) {
  const std::string help = named_mask_help();
  EXPECT_NE(help.find("window(left="), std::string::npos) << help;
  EXPECT_NE(help.find("\ndocument; tensors doc: i32 of rank 1; "), std::string::npos) << help;
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(help, '\n')), mask::named_masks().size());
}

// Field case F049, as masks: three descriptions of documents of 100, 56 and 100 tokens.
TEST(NamedMasks, DocumentsByIdByFlashMaskAndByRangesAreOneMask) {
  const AttentionShape shape = sizes(1, 1, 1, 256, 256);
  const std::int32_t starts[] = {0, 100, 156, 256};
  IntTensor doc({256});
  IntTensor startend({1, 1, 256, 2});
  IntTensor ranges({1, 1, 256, 1, 2});
  for (std::int32_t d = 0; d < 3; ++d) {
    for (std::int64_t token = starts[d]; token < starts[d + 1]; ++token) {
      doc.at({token}) = d;
      startend.at({0, 0, token, 0}) = starts[d + 1];
      startend.at({0, 0, token, 1}) = starts[d];
      ranges.at({0, 0, token, 0, 0}) = starts[d];
      ranges.at({0, 0, token, 0, 1}) = starts[d + 1];
    }
  }
  const auto one_document = [](auto, auto, std::int64_t q, std::int64_t k) {
    const auto number = [](std::int64_t token) { return token < 100 ? 0 : token < 156 ? 1 : 2; };
    return number(q) == number(k);
  };
  expect_visible(Mask::parse("document", {{"doc", doc.view()}}), shape, one_document);
  expect_visible(Mask::flashmask(shape, startend.view(), false), shape, one_document);
  expect_visible(Mask::key_ranges(shape, ranges.view()), shape, one_document);
}

TEST(Combinations, AndOrNotKeepTensorsOfOneNameApart) {
  const AttentionShape shape = sizes(1, 1, 1, 11, 11);
  auto first = random_tensor({11}, 0, 2, 1);
  auto second = random_tensor({11}, 0, 2, 2);
  const auto left = Mask::parse("t[q] <= t[k] + shift", {{"t", first.view()}}, {{"shift", std::int64_t{1}}});
  const auto right = Mask::parse("t[q] == t[k] + shift", {{"t", second.view()}}, {{"shift", std::int64_t{-1}}});
  ASSERT_TRUE(left && right);
  const auto is_left = [&](std::int64_t q, std::int64_t k) { return first.at({q}) <= first.at({k}) + 1; };
  const auto is_right = [&](std::int64_t q, std::int64_t k) { return second.at({q}) == second.at({k}) - 1; };
  expect_visible(*left & *right, shape, [&](auto, auto, auto q, auto k) { return is_left(q, k) && is_right(q, k); });
  expect_visible(*left | *right, shape, [&](auto, auto, auto q, auto k) { return is_left(q, k) || is_right(q, k); });
  expect_visible(~*left, shape, [&](auto, auto, auto q, auto k) { return !is_left(q, k); });
  expect_visible((*right & ~*left) | (*left & *right), shape,
                 [&](auto, auto, auto q, auto k) { return is_right(q, k); });
}

TEST(Combinations, LoopsOfBothSidesStayApart) {
  const AttentionShape shape = sizes(1, 2, 2, 8, 10);
  IntTensor first({1, 1, 8, 2, 2});
  IntTensor second({1, 2, 8, 1, 2});
  for (std::int64_t q = 0; q < 8; ++q) {
    first.at({0, 0, q, 0, 1}) = static_cast<std::int32_t>(q);
    first.at({0, 0, q, 1, 0}) = 8;
    first.at({0, 0, q, 1, 1}) = 10;
    for (std::int64_t h = 0; h < 2; ++h) {
      second.at({0, h, q, 0, 0}) = static_cast<std::int32_t>(h + q / 2);
      second.at({0, h, q, 0, 1}) = 9;
    }
  }
  const auto left = Mask::key_ranges(shape, first.view());
  const auto right = Mask::key_ranges(shape, second.view());
  ASSERT_TRUE(left && right);
  expect_visible(*left & *right, shape,
                 [](auto, auto h, auto q, auto k) { return (k < q || k >= 8) && k >= h + q / 2 && k < 9; });
}

TEST(Copies, AMaskOnAnotherDeviceOwnsItsTensorsAndKeepsItsMeaning) {
  const AttentionShape shape = sizes(3, 4, 2, 6, 9);
  auto ranges = random_tensor({1, 2, 6, 2, 2}, 0, 9, 3);
  const auto visible = [saved = ranges](auto, auto h, auto q, auto k) mutable {
    for (std::int64_t r = 0; r < 2; ++r) {
      if (saved.at({0, h / 2, q, r, 0}) <= k && k < saved.at({0, h / 2, q, r, 1})) return true;
    }
    return false;
  };
  const auto mask = Mask::key_ranges(shape, ranges.view());
  ASSERT_TRUE(mask.has_value()) << mask.error().message();
  const auto copy = mask->to(Device{});
  ASSERT_TRUE(copy.has_value());
  std::ranges::fill(ranges.values, 0);
  expect_visible(copy, shape, visible);
  EXPECT_EQ(copy->device(), Device{});
  const TensorView& view = copy->state().bindings.tensors.front();
  EXPECT_EQ(view.shape[0], 3);
  EXPECT_EQ(view.strides[0], 0) << "a broadcast axis is not copied out";
}

TEST(Copies, AMaskWithoutTensorsLivesNowhere) { EXPECT_EQ(Mask::causal().device(), std::nullopt); }

}  // namespace
}  // namespace flashspan::testing
