// Every tile that the resource model offers gives right results, in both directions.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attention/attention_fixture.hpp"
#include "attention/mask_data.hpp"
#include "flashspan/tuning.hpp"

namespace flashspan::tests {
namespace {

class Tiles : public AttentionTest {
 protected:
  /// A window, whose tiles are empty, partial and full, with tails in both lengths.
  [[nodiscard]] static Scenario window(Index head_dim) {
    return {.shape = shape_of(1, 2, 1, 300, 330, head_dim),
            .mask = expect_value(Mask::parse("(q + 30 >= k) & (q - k < 170)")),
            .visible = [](Index, Index, Index q, Index k) { return q + 30 >= k && q - k < 170; }};
  }
  [[nodiscard]] std::vector<TileConfig> offered(const Scenario& scenario, Direction direction) const {
    const Scenario wanted = here(scenario);
    const PlacedCall placed(wanted, random_inputs(wanted.shape), device(), dtype());
    const AnyCall call =
        direction == Direction::forward ? AnyCall(placed.forward_call()) : AnyCall(placed.backward_call());
    std::vector<TileConfig> tiles;
    for (const TileResources& resources : expect_value(attention().tiles(call))) tiles.push_back(resources.tile);
    EXPECT_FALSE(tiles.empty());
    return tiles;
  }
};
FLASHSPAN_ON_EVERY_PLACE(Tiles);

TEST_P(Tiles, OfForwardsAllGiveRightResults) {
  for (const Index head_dim : {64, 128, 256}) {
    Scenario scenario = window(head_dim);
    scenario.backward = false;
    for (const TileConfig& tile : offered(scenario, Direction::forward)) {
      SCOPED_TRACE(std::to_string(head_dim) + ": " + to_string(tile));
      scenario.forward_tile = tile;
      expect_passes(scenario);
    }
  }
}

TEST_P(Tiles, OfBackwardsAllGiveRightResults) {
  for (const Index head_dim : {64, 128, 256}) {
    Scenario scenario = window(head_dim);
    for (const TileConfig& tile : offered(scenario, Direction::backward)) {
      SCOPED_TRACE(std::to_string(head_dim) + ": " + to_string(tile));
      scenario.backward_tile = tile;
      expect_passes(scenario);
    }
  }
}

}  // namespace
}  // namespace flashspan::tests
