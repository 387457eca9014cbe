// json.hpp -- what the library tells about itself, as JSON: one form for the command and the C interface.
#pragma once

#include <nlohmann/json.hpp>

#include "flashspan/attention.hpp"
#include "flashspan/inspect.hpp"

namespace flashspan::reports {

using Json = nlohmann::ordered_json;

[[nodiscard]] inline Json to_json(const KernelRecord& record) {
  return {{"spec", record.spec},
          {"key", record.key},
          {"outcome", record.outcome},
          {"lowering", record.lowering},
          {"compile_ms", record.compile_ms},
          {"registers", record.registers},
          {"shared_bytes", record.shared_bytes},
          {"spill_bytes", record.spill_bytes}};
}

[[nodiscard]] inline Json to_json(const TileMap& tiles) {
  return {{"block_m", tiles.block_m}, {"block_n", tiles.block_n},
          {"rows", tiles.rows},       {"columns", tiles.columns},
          {"empty", tiles.empty},     {"full", tiles.full},
          {"partial", tiles.partial}, {"visible_pairs", tiles.visible_pairs}};
}

[[nodiscard]] inline Json to_json(const DirectionPlan& plan) {
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

[[nodiscard]] inline Json to_json(const Finding& finding) {
  return {{"subject", finding.subject}, {"ok", finding.ok}, {"detail", finding.detail}, {"remedy", finding.remedy}};
}

}  // namespace flashspan::reports
