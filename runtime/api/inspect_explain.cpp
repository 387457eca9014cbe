// inspect_explain.cpp -- the path from mask to kernel with its values, without compiling or launching.
#include <string>
#include <utility>

#include "codegen/kernel/tile_config.hpp"
#include "codegen/mask/score_derivative.hpp"
#include "codegen/mask/simplify.hpp"
#include "flashspan/inspect.hpp"
#include "runtime/api/states.hpp"
#include "runtime/attention/choose_spec.hpp"
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

Result<DirectionPlan> plan_direction(Direction direction, const Mask& mask, const Score* score,
                                     const AttentionShape& shape, DType dtype, std::optional<Arch> arch) {
  attention::SpecChoice choice;
  choice.direction = direction;
  choice.target.kind = arch ? DeviceKind::cuda : DeviceKind::cpu;
  if (arch) choice.target.arch = *arch;
  choice.dtype = dtype;
  choice.head_dim_qk = static_cast<int>(shape.head_dim_qk);
  choice.head_dim_v = static_cast<int>(shape.head_dim_v);
  choice.few_rows = kernel::worth_splitting(shape);
  const auto spec = attention::choose_spec(choice, mask.state(), score != nullptr ? &score->state() : nullptr);
  if (!spec) return spec.error();
  const mask::Lowering& lowering = attention::lowering_of(mask.state(), direction);
  DirectionPlan plan;
  plan.direction = direction;
  plan.lowering = to_string(spec->lowering);
  plan.lowering_reason = spec->lowering == lowering.kind ? lowering.reason : "the mma backward evaluates open tiles";
  if (arch) plan.kernel_family = to_string(spec->family);
  plan.kernel_family_reason = kernel::choose_family(*spec).reason;
  plan.spec = spec->to_text();
  plan.block_m = spec->tile.block_m;
  plan.block_n = spec->tile.block_n;
  return plan;
}

}  // namespace

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
  for (Direction direction : {Direction::forward, Direction::backward}) {
    auto plan = plan_direction(direction, mask, score, shape, dtype, arch);
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
