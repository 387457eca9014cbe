// inspect_explain.cpp -- the path from mask to kernel with its values, without compiling or launching.
#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "codegen/kernel/resource_model.hpp"
#include "codegen/kernel/tile_config.hpp"
#include "codegen/mask/score_derivative.hpp"
#include "codegen/mask/simplify.hpp"
#include "flashspan/inspect.hpp"
#include "runtime/api/log_sink.hpp"
#include "runtime/api/settings.hpp"
#include "runtime/api/states.hpp"
#include "runtime/api/tuner.hpp"
#include "runtime/api/tuning_files.hpp"
#include "runtime/attention/choose_spec.hpp"
#include "runtime/attention/tuning_table.hpp"
#include "runtime/attention/validate.hpp"
#include "runtime/attention/validate_program.hpp"

namespace flashspan {

namespace {

bool depends(mask::VariableSet set, mask::Variable variable) { return (set & mask::set_of(variable)) != 0; }

std::string dependencies_text(mask::VariableSet set) {
  std::string text;
  for (int variable = 0; variable < mask::variable_count; ++variable) {
    if (!depends(set, static_cast<mask::Variable>(variable))) continue;
    text += (text.empty() ? "" : ", ") + std::string(mask::to_string(static_cast<mask::Variable>(variable)));
  }
  return text;
}

/// Visible pairs over all batches and query heads. Those that the mask does not tell apart are counted once and
/// multiplied.
Result<double> visible_pairs(const Mask& mask, const AttentionShape& shape, const TileMap& first) {
  const mask::VariableSet set = mask.state().program.dependencies();
  const std::int64_t batches = depends(set, mask::Variable::b) ? shape.batch : 1;
  const std::int64_t heads = depends(set, mask::Variable::h) ? shape.query_heads : 1;
  const auto alike = static_cast<double>((shape.batch / batches) * (shape.query_heads / heads));  // exact
  double pairs = 0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    for (std::int64_t head = 0; head < heads; ++head) {
      if (batch == 0 && head == 0) {
        pairs += static_cast<double>(first.visible_pairs);
        continue;
      }
      const auto map = tile_map(mask, shape, batch, head, first.block_m, first.block_n);
      if (!map) return map.error();
      pairs += static_cast<double>(map->visible_pairs);
    }
  }
  return pairs * alike;
}

double flops_per_pair(Direction direction, const AttentionShape& shape) {
  const auto head_dim_qk = static_cast<double>(shape.head_dim_qk);
  const auto head_dim_v = static_cast<double>(shape.head_dim_v);
  switch (direction) {
    case Direction::forward:
      return 2 * (head_dim_qk + head_dim_v);
    case Direction::backward:
      return 2 * (3 * head_dim_qk + 2 * head_dim_v);
  }
  return 0;
}

Result<kernel::KernelSpec> spec_of(Direction direction, const Mask& mask, const Score* score,
                                   const AttentionShape& shape, DType dtype, std::optional<Arch> arch) {
  attention::SpecChoice choice;
  choice.direction = direction;
  choice.target.kind = arch ? DeviceKind::cuda : DeviceKind::cpu;
  if (arch) choice.target.arch = *arch;
  choice.dtype = dtype;
  choice.head_dim_qk = static_cast<int>(shape.head_dim_qk);
  choice.head_dim_v = static_cast<int>(shape.head_dim_v);
  choice.few_rows = kernel::worth_splitting(shape);
  return attention::choose_spec(choice, mask.state(), score != nullptr ? &score->state() : nullptr);
}

std::vector<TuningRecord> known_tunings() {
  const api::Settings& settings = api::settings();
  return api::read_tunings(settings, std::nullopt, api::cache_folder(settings, std::nullopt),
                           api::cache_layers(settings, std::nullopt), api::standard_log(settings.log));
}

std::string milliseconds_text(double milliseconds) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.3f ms", milliseconds);
  return buffer.data();
}

struct TileChoice {
  TileConfig tile;
  std::string reason;
};

/// As calls choose it on the device of the result that is found, which need not be here. The reason names the steps of
/// the choice, up to the one that gave the tile.
TileChoice choose_tile(const kernel::KernelSpec& spec, const AttentionShape& shape,
                       const attention::TunedTiles& tuned) {
  const auto found = tuned.find(spec, shape);
  if (!found) {
    const std::string untuned = "no result of tuning for this class of shapes, nor for another: ";
    return {spec.tile, untuned + (kernel::is_in_table(spec) ? "the built-in table"
                                                            : "not in the built-in table: the resource model's best")};
  }
  const TuningRecord& record = found->record;
  return {found->tile,
          std::string(found->same_class ? "tuned for this class of shapes"
                                        : "no result of tuning for this class of shapes: tuned for the nearest one") +
              " on " + record.device + ", " + record.date + ": " + milliseconds_text(record.milliseconds) +
              ", the default " + milliseconds_text(record.default_milliseconds)};
}

Result<DirectionPlan> plan_direction(Direction direction, const Mask& mask, const Score* score,
                                     const AttentionShape& shape, DType dtype, std::optional<Arch> arch,
                                     const attention::TunedTiles& tuned) {
  auto spec = spec_of(direction, mask, score, shape, dtype, arch);
  if (!spec) return spec.error();
  const mask::Lowering& lowering = attention::lowering_of(mask.state(), direction);
  DirectionPlan plan;
  plan.direction = direction;
  plan.lowering = to_string(spec->lowering);
  plan.lowering_reason = spec->lowering == lowering.kind ? lowering.reason : "the mma backward evaluates open tiles";
  if (arch) plan.kernel_family = to_string(spec->family);
  plan.kernel_family_reason = kernel::choose_family(*spec).reason;
  const TileChoice chosen = choose_tile(*spec, shape, tuned);
  spec->tile = chosen.tile;
  plan.tile = to_string(chosen.tile);
  plan.tile_reason = chosen.reason;
  plan.spec = spec->to_text();
  plan.block_m = spec->tile.block_m;
  plan.block_n = spec->tile.block_n;
  return plan;
}

}  // namespace

Result<std::vector<TileResources>> tile_candidates(const Mask& mask, const Score* score, const AttentionShape& shape,
                                                   DType dtype, Direction direction, std::optional<Arch> arch) {
  if (auto legal = attention::check_shape(shape); !legal) return legal.error();
  const DeviceKind kind = arch ? DeviceKind::cuda : DeviceKind::cpu;
  if (auto served = attention::check_dtype_and_head_dims(dtype, shape, kind); !served) return served.error();
  const auto spec = spec_of(direction, mask, score, shape, dtype, arch);
  if (!spec) return spec.error();
  return api::tile_resources(*spec, mask.state().light, shape, kernel::CallSize{}.processors);
}

Result<Explanation> explain(const Mask& mask, const Score* score, const AttentionShape& shape, DType dtype,
                            std::optional<Arch> arch) {
  const DeviceKind kind = arch ? DeviceKind::cuda : DeviceKind::cpu;
  if (auto legal = attention::check_shape(shape); !legal) return legal.error();
  if (auto served = attention::check_dtype_and_head_dims(dtype, shape, kind); !served) return served.error();
  if (score != nullptr) {
    if (auto host = attention::check_in_host_memory("score", score->state()); !host) return host.error();
    if (auto fits = attention::check_program("score", score->state(), shape, Device{}); !fits) return fits.error();
  }
  Explanation explanation;
  const attention::TunedTiles tuned(known_tunings());
  for (Direction direction : {Direction::forward, Direction::backward}) {
    auto plan = plan_direction(direction, mask, score, shape, dtype, arch, tuned);
    if (!plan) return plan.error();
    explanation.directions.push_back(std::move(*plan));
  }
  explanation.program = mask.text();
  explanation.depends_on = dependencies_text(mask.state().program.dependencies());
  if (score != nullptr) {
    explanation.score = score->text();
    explanation.score_derivative = mask::simplify(mask::derivative_by_score(score->state().program)).to_text();
  }
  const DirectionPlan& forward = explanation.directions.front();
  if (shape.batch == 0 || shape.query_heads == 0) {
    explanation.tiles.block_m = forward.block_m;
    explanation.tiles.block_n = forward.block_n;
    return explanation;
  }
  auto tiles = tile_map(mask, shape, 0, 0, forward.block_m, forward.block_n);
  if (!tiles) return tiles.error();
  explanation.tiles = std::move(*tiles);
  const auto pairs = visible_pairs(mask, shape, explanation.tiles);
  if (!pairs) return pairs.error();
  const double all_pairs = static_cast<double>(shape.batch * shape.query_heads) * static_cast<double>(shape.q_len) *
                           static_cast<double>(shape.kv_len);
  explanation.density = all_pairs > 0 ? *pairs / all_pairs : 0;
  for (DirectionPlan& plan : explanation.directions) plan.flops = flops_per_pair(plan.direction, shape) * *pairs;
  return explanation;
}

}  // namespace flashspan
