// short_documents_test.cpp -- documents shorter than a tile, and such that begin and end anywhere in one: some of a
// tile's rows see nothing of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"

namespace flashspan::tests {
namespace {

class ShortDocuments : public AttentionTest {
 protected:
  static constexpr Index length = 1 + 63 + 64 + 65 + 129 + 1 + 1 + 200 + 64 + 30;
  Integers documents_ = document_ids({1, 63, 64, 65, 129, 1, 1, 200, 64, 30});

  [[nodiscard]] Mask mask(const std::string& text) {
    return expect_value(Mask::parse(text, {{"doc", view_of(documents_, {length})}}));
  }
  [[nodiscard]] bool same(Index q, Index k) const {
    return documents_[static_cast<std::size_t>(q)] == documents_[static_cast<std::size_t>(k)];
  }
  [[nodiscard]] oracle::Visible visible() const {
    return [this](Index, Index, Index q, Index k) { return same(q, k); };
  }
};
FLASHSPAN_ON_EVERY_PLACE(ShortDocuments);

TEST_P(ShortDocuments, EveryHeadDimsTileSkipsOnlyWhatItsRowsDoNotSee) {
  for (const Index head_dim : {64, 128, 192, 256}) {
    SCOPED_TRACE(head_dim);
    const AttentionShape shape = shape_of(2, 4, 2, length, length, head_dim);
    expect_passes({.shape = shape, .mask = mask("doc[q] == doc[k]"), .visible = visible(), .backward = false});
    expect_passes({.shape = shape,
                   .mask = mask("(doc[q] == doc[k]) & (q >= k)"),
                   .visible = [this](Index, Index, Index q, Index k) { return q >= k && same(q, k); },
                   .backward = false});
  }
}

TEST_P(ShortDocuments, BandsThatMissTheMiddleOfARowOfTilesAgreeUnderEveryLowering) {
  // Rows 64 to 127 see the first and the last tiles of their row and none between: their warpgroup stops and goes on.
  const auto visible = [](Index, Index, Index q, Index k) { return q % 128 < 64 ? q / 2 < k : k < 3 || k >= 500; };
  const Mask band = expect_value(Mask::parse("where(q % 128 < 64, q // 2 < k, (k < 3) | (k >= 500))"));
  for (const Index head_dim : {64, 128}) {
    for (const LoweringKind kind :
         {LoweringKind::row_ranges, LoweringKind::column_bounds, LoweringKind::bit_tiles, LoweringKind::expression}) {
      const auto lowered = band.with_lowering(Direction::forward, kind);
      if (!lowered) continue;
      SCOPED_TRACE(std::string(to_string(kind)) + ", head dim " + std::to_string(head_dim));
      expect_passes(
          {.shape = shape_of(1, 2, 1, 300, 600, head_dim), .mask = *lowered, .visible = visible, .backward = false});
    }
  }
}

TEST_P(ShortDocuments, HiddenNanInASkippedTileHasNoInfluence) {
  const Scenario scenario{
      .shape = shape_of(1, 2, 1, length, length, 128), .mask = mask("doc[q] == doc[k]"), .backward = false};
  Inputs inputs = random_inputs(scenario.shape);
  const oracle::Answer clean = run(scenario, inputs);
  // The document of tokens 64 to 127 is the upper half of the first tile of queries.
  std::fill_n(inputs.value.row(0, 0, 64), 64 * 128, std::nan(""));
  std::fill_n(inputs.key.row(0, 0, 64), 64 * 128, std::nan(""));
  const oracle::Answer answer = run(scenario, inputs);
  for (Index q = 0; q < length; ++q) {
    const bool sees = q >= 64 && q < 128;
    EXPECT_EQ(std::isnan(answer.out.at(0, 1, q, 5)), sees) << q;
    EXPECT_EQ(std::isnan(answer.lse.at(0, 1, q)), sees) << q;
    if (sees) continue;
    EXPECT_EQ(answer.out.at(0, 1, q, 5), clean.out.at(0, 1, q, 5)) << q;
    EXPECT_EQ(answer.lse.at(0, 1, q), clean.lse.at(0, 1, q)) << q;
  }
}

}  // namespace
}  // namespace flashspan::tests
