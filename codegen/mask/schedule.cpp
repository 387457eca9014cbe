// schedule.cpp -- see schedule.hpp.
#include "codegen/mask/schedule.hpp"

#include <algorithm>
#include <array>

#include "codegen/mask/rebuild.hpp"

namespace flashspan::mask {

Schedule schedule(const Program& program) {
  if (program.nodes().empty()) return {};
  return schedule(program, std::array{program.root()});
}

Schedule schedule(const Program& program, std::span<const NodeId> roots) {
  const std::vector<NodeId> live = live_nodes(program, roots);
  const std::vector<std::vector<int>> free_loops = program.free_loops_by_node();
  std::unordered_map<int, NodeId> any_of_loop;
  for (const NodeId id : live) {
    if (program.node(id).op == Op::any) any_of_loop[program.node(id).symbol] = id;
  }
  // Of two loops that one node uses, one stands inside the other and therefore uses the other's variable too.
  const auto stands_inside = [&](int loop, int other) {
    const std::vector<int>& used = free_loops[static_cast<std::size_t>(any_of_loop.at(loop))];
    return std::binary_search(used.begin(), used.end(), other);
  };
  Schedule result;
  for (const NodeId id : live) {
    const int* innermost = nullptr;
    for (const int& loop : free_loops[static_cast<std::size_t>(id)]) {
      if (innermost == nullptr || stands_inside(loop, *innermost)) innermost = &loop;
    }
    (innermost == nullptr ? result.once : result.by_loop[*innermost]).push_back(id);
  }
  return result;
}

}  // namespace flashspan::mask
