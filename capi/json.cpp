#include "capi/json.hpp"

#include <utility>

#include "reports/json.hpp"

namespace flashspan::capi {
namespace {

using reports::Json;
using reports::to_json;

/// Fields in the order of their names.
std::string text_of(const Json& json) {
  const nlohmann::json sorted = json;
  // A user's text may hold bytes that are not UTF-8; they are replaced rather than refused.
  return sorted.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string json_of(const KernelRecord& record) { return text_of(to_json(record)); }

std::string json_of(const Explanation& explanation) {
  Json tiles = to_json(explanation.tiles);
  tiles["undecided_by_analysis"] = explanation.tiles.undecided_by_analysis;
  Json json{{"program", explanation.program},
            {"score", explanation.score},
            {"score_derivative", explanation.score_derivative},
            {"depends_on", explanation.depends_on},
            {"density", explanation.density},
            {"tiles", std::move(tiles)},
            {"directions", Json::array()}};
  for (const DirectionPlan& plan : explanation.directions) json["directions"].push_back(to_json(plan));
  return text_of(json);
}

std::string json_of(const std::vector<Finding>& findings) {
  Json json{{"findings", Json::array()}};
  for (const Finding& finding : findings) json["findings"].push_back(to_json(finding));
  return text_of(json);
}

std::string json_of(const TunedCandidate& candidate) { return text_of(to_json(candidate)); }

std::string json_of(const TuneReport& report) { return text_of(to_json(report)); }

}  // namespace flashspan::capi
