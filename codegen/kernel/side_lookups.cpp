#include "codegen/kernel/side_lookups.hpp"

#include "codegen/mask/schedule.hpp"

namespace flashspan::kernel {

using mask::NodeId;
using mask::Program;

SideLookups side_lookups(const Program& program) {
  const std::vector<mask::VariableSet>& inputs = program.dependencies_by_node();
  SideLookups lookups;
  for (const NodeId id : mask::schedule(program).once) {
    if (program.node(id).op != mask::Op::lookup) continue;
    const mask::VariableSet used = inputs[static_cast<std::size_t>(id)];
    const bool by_query = (used & set_of(mask::Variable::q)) != 0;
    const bool by_key = (used & set_of(mask::Variable::k)) != 0;
    if (by_query && by_key) continue;
    std::vector<NodeId>& side = by_key ? lookups.columns : lookups.rows;
    if (side.size() < max_side_lookups) side.push_back(id);
  }
  return lookups;
}

NodeSelection nodes_behind(const Program& program, const std::vector<NodeId>& results, const NodeSelection& given) {
  NodeSelection selected(program.nodes().size(), false);
  std::vector<NodeId> open = results;
  while (!open.empty()) {
    const NodeId id = open.back();
    open.pop_back();
    const auto at = static_cast<std::size_t>(id);
    if (selected[at]) continue;
    selected[at] = true;
    if (given[at]) continue;
    const std::vector<NodeId>& operands = program.node(id).operands;
    open.insert(open.end(), operands.begin(), operands.end());
  }
  return selected;
}

}  // namespace flashspan::kernel
