// json.hpp -- what the library tells about itself, as JSON: one form for the command and the C interface.
#pragma once

#include <nlohmann/json.hpp>

#include "flashspan/attention.hpp"
#include "flashspan/inspect.hpp"
#include "flashspan/tuning.hpp"

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
          {"tile", plan.tile},
          {"tile_reason", plan.tile_reason},
          {"flops", plan.flops}};
}

[[nodiscard]] inline Json to_json(const TileConfig& tile) {
  return {{"block_m", tile.block_m},
          {"block_n", tile.block_n},
          {"num_warps", tile.num_warps},
          {"num_stages", tile.num_stages}};
}

[[nodiscard]] inline Json to_json(const TileResources& resources) {
  return {{"tile", to_json(resources.tile)},
          {"threads", resources.threads},
          {"shared_bytes", resources.shared_bytes},
          {"shared_limit", resources.shared_limit},
          {"accumulator_registers", resources.accumulator_registers},
          {"registers", resources.registers},
          {"register_limit", resources.register_limit},
          {"blocks_per_multiprocessor", resources.blocks_per_multiprocessor},
          {"occupancy", resources.occupancy},
          {"predicted_cost", resources.predicted_cost}};
}

[[nodiscard]] inline Json to_json(const TunedCandidate& candidate) {
  Json json = to_json(candidate.resources);
  json.update({{"outcome", to_string(candidate.outcome)},
               {"note", candidate.note},
               {"milliseconds", candidate.milliseconds},
               {"runs", candidate.runs},
               {"compiled_registers", candidate.compiled_registers},
               {"spill_bytes", candidate.spill_bytes}});
  return json;
}

[[nodiscard]] inline Json to_json(const AttentionShape& shape) {
  return {{"batch", shape.batch},          {"query_heads", shape.query_heads}, {"kv_heads", shape.kv_heads},
          {"q_len", shape.q_len},          {"kv_len", shape.kv_len},           {"head_dim_qk", shape.head_dim_qk},
          {"head_dim_v", shape.head_dim_v}};
}

[[nodiscard]] inline Json to_json(const TuningRecord& record) {
  return {{"spec", record.spec},
          {"shape", to_json(record.shape)},
          {"device", record.device},
          {"processors", record.processors},
          {"compiler", record.compiler},
          {"driver", record.driver},
          {"tile", to_json(record.tile)},
          {"milliseconds", record.milliseconds},
          {"default_tile", to_json(record.default_tile)},
          {"default_milliseconds", record.default_milliseconds},
          {"candidates", record.candidates},
          {"date", record.date}};
}

[[nodiscard]] inline Json to_json(const TuneReport& report) {
  Json json{{"best", to_json(report.best)},
            {"remembered", report.remembered},
            {"not_remembered", report.not_remembered},
            {"candidates", Json::array()}};
  for (const TunedCandidate& candidate : report.candidates) json["candidates"].push_back(to_json(candidate));
  return json;
}

[[nodiscard]] inline Json to_json(const Finding& finding) {
  return {{"subject", finding.subject}, {"ok", finding.ok}, {"detail", finding.detail}, {"remedy", finding.remedy}};
}

}  // namespace flashspan::reports
