#include "codegen/kernel/score_lookups.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "codegen/kernel/tile_config.hpp"
#include "codegen/mask/rebuild.hpp"
#include "codegen/mask/score_derivative.hpp"

namespace flashspan::kernel {

using mask::Node;
using mask::NodeId;
using mask::Op;
using mask::Program;

namespace {

bool is_zero(const Program& program) {
  const Node& root = program.node(program.root());
  return root.op == Op::real_constant && root.real == 0;
}

/// The part of `score` that finds node `lookup`.
Program part_below(const Program& score, NodeId lookup) {
  Program part = score;
  part.set_root(lookup);
  return mask::rebuild(part, mask::Declarations::keep_all);
}

/// How often q and k are in a value that is a sum of them and of what depends on neither.
struct Coefficients {
  std::int64_t q = 0;
  std::int64_t k = 0;
};

std::optional<Coefficients> coefficients_of(const Node& node, const std::vector<std::optional<Coefficients>>& earlier) {
  const auto operand = [&](std::size_t i) { return earlier[static_cast<std::size_t>(node.operands[i])]; };
  if (node.op == Op::variable) {
    return Coefficients{node.symbol == static_cast<int>(mask::Variable::q) ? 1 : 0,
                        node.symbol == static_cast<int>(mask::Variable::k) ? 1 : 0};
  }
  if (node.op == Op::negate && operand(0)) return Coefficients{-operand(0)->q, -operand(0)->k};
  if (node.op != Op::add && node.op != Op::subtract) return std::nullopt;
  if (!operand(0) || !operand(1)) return std::nullopt;
  const std::int64_t sign = node.op == Op::add ? 1 : -1;
  return Coefficients{operand(0)->q + sign * operand(1)->q, operand(0)->k + sign * operand(1)->k};
}

}  // namespace

bool ScoreLookup::by_distance() const {
  constexpr mask::VariableSet pair = set_of(mask::Variable::q) | set_of(mask::Variable::k);
  const std::vector<mask::VariableSet>& inputs = at.dependencies_by_node();
  std::vector<std::optional<Coefficients>> coefficients;
  std::vector<bool> of_distance;
  for (std::size_t i = 0; i < at.nodes().size(); ++i) {
    const Node& node = at.nodes()[i];
    const bool of_neither = (inputs[i] & pair) == 0;
    coefficients.push_back(of_neither ? Coefficients{} : coefficients_of(node, coefficients));
    const bool cancels = coefficients[i] && coefficients[i]->q + coefficients[i]->k == 0;
    const bool of_operands = !node.operands.empty() && std::ranges::all_of(node.operands, [&](NodeId operand) {
      return of_distance[static_cast<std::size_t>(operand)];
    });
    of_distance.push_back(of_neither || cancels || of_operands);
  }
  return by_query() && by_key() && of_distance[static_cast<std::size_t>(at.root())];
}

std::vector<ScoreLookup> score_lookups(const Program& score, const std::string& names) {
  const std::vector<std::string> wanted = split_names(names);
  std::vector<ScoreLookup> lookups;
  for (const NodeId id : mask::live_nodes(score)) {
    const Node& node = score.node(id);
    if (node.op != Op::lookup || node.type != mask::ValueType::real) continue;
    const auto named = std::ranges::find(wanted, score.tensors()[static_cast<std::size_t>(node.symbol)].name);
    if (named == wanted.end()) continue;
    Program slope = mask::derivative_by_lookup(score, id);
    if (is_zero(slope)) continue;
    lookups.push_back({static_cast<int>(named - wanted.begin()), part_below(score, id), std::move(slope)});
  }
  return lookups;
}

ScoreGradientMemory score_gradient_memory(const KernelSpec& spec, const std::vector<ScoreLookup>& lookups) {
  constexpr std::int64_t row_bytes = std::int64_t{4} * (32 + 1);  // distance_pitch of backward_score.cuh
  const std::int64_t tiles = score_gradient_tile_bytes(spec);
  const auto by_distance = std::ranges::count_if(lookups, &ScoreLookup::by_distance);
  const std::int64_t sums = by_distance * spec.tile.block_m * row_bytes;
  if (by_distance == 0 || tiles + sums > shared_memory_limit(spec.target.arch)) return {tiles, false};
  return {tiles + sums, true};
}

std::int64_t score_gradient_shared_bytes(const KernelSpec& spec) {
  const auto score = Program::from_signature(spec.score);
  if (!score) return score_gradient_tile_bytes(spec);
  return score_gradient_memory(spec, score_lookups(*score, spec.score_gradients)).bytes;
}

std::string join_names(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ",") + name;
  return joined;
}

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> split;
  for (std::size_t start = 0; start < names.size();) {
    const std::size_t end = std::min(names.find(',', start), names.size());
    split.push_back(names.substr(start, end - start));
    start = end + 1;
  }
  return split;
}

}  // namespace flashspan::kernel
