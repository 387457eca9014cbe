#include "capi/json.hpp"

#include <nlohmann/json.hpp>

namespace flashspan::capi {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& json) {
  // A user's text may hold bytes that are not UTF-8; they are replaced rather than refused.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json json_of(const DirectionPlan& plan) {
  return {{"direction", to_string(plan.direction)},
          {"lowering", plan.lowering},
          {"reason", plan.lowering_reason},
          {"family", plan.kernel_family},
          {"family_reason", plan.kernel_family_reason},
          {"spec", plan.spec},
          {"block_m", plan.block_m},
          {"block_n", plan.block_n},
          {"flops", plan.flops}};
}

}  // namespace

std::string json_of(const KernelRecord& record) {
  return text_of({{"spec", record.spec},
                  {"key", record.key},
                  {"outcome", record.outcome},
                  {"lowering", record.lowering},
                  {"compile_ms", record.compile_ms},
                  {"registers", record.registers},
                  {"shared_bytes", record.shared_bytes},
                  {"spill_bytes", record.spill_bytes}});
}

std::string json_of(const Explanation& explanation) {
  const TileMap& tiles = explanation.tiles;
  Json json{{"program", explanation.program},
            {"score", explanation.score},
            {"score_derivative", explanation.score_derivative},
            {"depends_on", explanation.depends_on},
            {"density", explanation.density},
            {"tiles",
             {{"block_m", tiles.block_m},
              {"block_n", tiles.block_n},
              {"rows", tiles.rows},
              {"columns", tiles.columns},
              {"empty", tiles.empty},
              {"full", tiles.full},
              {"partial", tiles.partial},
              {"visible_pairs", tiles.visible_pairs},
              {"undecided_by_analysis", tiles.undecided_by_analysis}}},
            {"directions", Json::array()}};
  for (const DirectionPlan& plan : explanation.directions) json["directions"].push_back(json_of(plan));
  return text_of(json);
}

std::string json_of(const std::vector<Finding>& findings) {
  Json json{{"findings", Json::array()}};
  for (const Finding& finding : findings) {
    json["findings"].push_back(
        {{"subject", finding.subject}, {"ok", finding.ok}, {"detail", finding.detail}, {"remedy", finding.remedy}});
  }
  return text_of(json);
}

}  // namespace flashspan::capi
