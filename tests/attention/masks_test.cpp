// masks_test.cpp -- every kind of mask in both directions: named masks, expressions, combinations.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class Masks : public AttentionTest {
 protected:
  /// Two batches of 200 queries and keys, 4 heads over 2.
  void expect_mask(const Mask& mask, const oracle::Visible& visible) {
    expect_passes({.shape = shape_of(2, 4, 2, length, length, 64), .mask = mask, .visible = visible});
  }
  static constexpr Index length = 200;
};
FLASHSPAN_ON_EVERY_PLACE(Masks);

TEST_P(Masks, SlidingWindowsWithAndWithoutSinks) {
  expect_mask(expect_value(Mask::parse("causal_window(left=31)")),
              [](Index, Index, Index q, Index k) { return k <= q && q - k <= 31; });
  expect_mask(expect_value(Mask::parse("sink_window(left=31, sinks=5)")),
              [](Index, Index, Index q, Index k) { return k <= q && (q - k <= 31 || k < 5); });
  expect_mask(expect_value(Mask::parse("global_window(left=20, right=9, globals=3)")),
              [](Index, Index, Index q, Index k) { return (q - k <= 20 && k - q <= 9) || k < 3 || q < 3; });
  expect_mask(expect_value(Mask::parse("dilated_window(left=90, step=3)")),
              [](Index, Index, Index q, Index k) { return k <= q && q - k <= 90 && (q - k) % 3 == 0; });
}

TEST_P(Masks, ChunksAndPrefixes) {
  expect_mask(expect_value(Mask::parse("chunked(size=48)")),
              [](Index, Index, Index q, Index k) { return k <= q && q / 48 == k / 48; });
  expect_mask(expect_value(Mask::parse("prefix_lm(prefix=70)")),
              [](Index, Index, Index q, Index k) { return k <= q || k < 70; });
}

TEST_P(Masks, DocumentsOfEveryFamily) {
  Integers documents = document_ids({70, 1, 64, 65});
  Integers prefix_ends(length), answers(length);
  const std::vector<Index> begins{0, 70, 71, 135};
  const std::vector<Index> lengths{70, 1, 64, 65};
  for (std::size_t i = 0; i < length; ++i) {
    const auto document = static_cast<std::size_t>(documents[i]);
    prefix_ends[i] = static_cast<std::int32_t>(begins[document] + lengths[document] / 4);
    answers[i] = static_cast<std::int32_t>((static_cast<Index>(i) - begins[document]) * 3 / lengths[document]);
  }
  const NamedTensor doc{"doc", view_of(documents, {length})};
  const auto same = [documents](Index q, Index k) {
    return documents[static_cast<std::size_t>(q)] == documents[static_cast<std::size_t>(k)];
  };
  expect_mask(expect_value(Mask::parse("document", {doc})),
              [same](Index, Index, Index q, Index k) { return same(q, k); });
  expect_mask(expect_value(Mask::parse("causal_document", {doc})),
              [same](Index, Index, Index q, Index k) { return same(q, k) && k <= q; });
  expect_mask(expect_value(Mask::parse("prefix_lm_document", {doc, {"prefix_end", view_of(prefix_ends, {length})}})),
              [same, prefix_ends](Index, Index, Index q, Index k) {
                return same(q, k) && (k <= q || k < prefix_ends[static_cast<std::size_t>(q)]);
              });
  expect_mask(expect_value(Mask::parse("shared_question", {doc, {"answer", view_of(answers, {length})}})),
              [same, answers](Index, Index, Index q, Index k) {
                const auto of_query = answers[static_cast<std::size_t>(q)];
                const auto of_key = answers[static_cast<std::size_t>(k)];
                return same(q, k) && k <= q && (of_key == 0 || of_query == of_key);
              });
  expect_mask(expect_value(Mask::parse("causal_blockwise(last_block=3)", {{"block", doc.view}})),
              [same](Index, Index, Index q, Index k) { return k <= q && (same(q, k) || q >= 135); });
}

TEST_P(Masks, ExpressionsOfBatchHeadTensorsAndScalars) {
  Integers used = {150, 37};
  Reals slopes = {0.5F, 1.0F, 2.0F, 4.0F};
  const Mask mask = expect_value(Mask::parse("(k < used[b]) & (slope[h] * (q - k) < limit) & ((q + k) % step != 0)",
                                             {{"used", view_of(used, {2})}, {"slope", view_of(slopes, {4})}},
                                             {{"limit", 80.5}, {"step", std::int64_t{7}}}));
  expect_mask(mask, [used, slopes](Index b, Index h, Index q, Index k) {
    const double reach = static_cast<double>(slopes[static_cast<std::size_t>(h)]) * static_cast<double>(q - k);
    return k < used[static_cast<std::size_t>(b)] && reach < 80.5 && (q + k) % 7 != 0;
  });
}

TEST_P(Masks, ADenseMaskIsALookedUpTensor) {
  Integers dense = random_integers(std::size_t{8} * length * length, 0, 3, 5);
  const Mask mask = expect_value(Mask::parse("m[b, h, q, k] == 0", {{"m", view_of(dense, {2, 4, length, length})}}));
  expect_mask(mask, [dense](Index b, Index h, Index q, Index k) {
    return dense[static_cast<std::size_t>(((b * 4 + h) * length + q) * length + k)] == 0;
  });
}

TEST_P(Masks, CombinationsKeepTheirOwnTensorsAndScalars) {
  Integers first = document_ids({50, 90, 60});
  Integers second = document_ids({120, 80});
  const Mask left = expect_value(Mask::parse("document", {{"doc", view_of(first, {length})}}));
  const Mask right = expect_value(Mask::parse("document", {{"doc", view_of(second, {length})}}));
  const auto same = [](const Integers& ids, Index q, Index k) {
    return ids[static_cast<std::size_t>(q)] == ids[static_cast<std::size_t>(k)];
  };
  expect_mask(left & right & Mask::causal(),
              [=](Index, Index, Index q, Index k) { return same(first, q, k) && same(second, q, k) && k <= q; });
  expect_mask(left | expect_value(Mask::window(3, 3)),
              [=](Index, Index, Index q, Index k) { return same(first, q, k) || (q - k <= 3 && k - q <= 3); });
  expect_mask(~left & right, [=](Index, Index, Index q, Index k) { return !same(first, q, k) && same(second, q, k); });
}

TEST_P(Masks, LoopsOverRangesOfData) {
  Integers marks = {3, 60, 61, 130, 199};
  const Mask mask =
      expect_value(Mask::parse("any(k == mark[r] for r in range(0, 5)) | (k == q)", {{"mark", view_of(marks, {5})}}));
  expect_mask(mask, [marks](Index, Index, Index q, Index k) {
    return k == q || std::find(marks.begin(), marks.end(), static_cast<std::int32_t>(k)) != marks.end();
  });
}

TEST_P(Masks, TheSameNumbersComeOutForEveryWayToSayCausal) {
  Integers starts(length, static_cast<std::int32_t>(length));
  Integers positions(length);
  for (std::size_t i = 0; i < length; ++i) positions[i] = static_cast<std::int32_t>(i);
  const AttentionShape shape = shape_of(1, 2, 2, length, length, 64);
  const Inputs inputs = random_inputs(shape);
  const auto causal = [](Index, Index, Index q, Index k) { return k <= q; };
  const Mask ways[] = {
      Mask::causal(), expect_value(Mask::parse("q >= k")), expect_value(Mask::window({}, 0)),
      expect_value(Mask::flashmask(shape, view_of(starts, {1, 1, length, 1}), true)),
      expect_value(Mask::scfa_index(shape, view_of(positions, {1, 1, length}), view_of(positions, {1, 1, length})))};
  for (const Mask& mask : ways) {
    SCOPED_TRACE(mask.text());
    expect_passes({.shape = shape, .mask = mask, .visible = causal}, inputs);
  }
}

}  // namespace
}  // namespace flashspan::tests
