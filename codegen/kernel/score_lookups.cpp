#include "codegen/kernel/score_lookups.hpp"

#include <algorithm>

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

}  // namespace

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
