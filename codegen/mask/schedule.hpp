// schedule.hpp -- which nodes to compute once, and which again for every value of a loop variable.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "codegen/mask/program.hpp"

namespace flashspan::mask {

/// Computing `once` in order, and for every `any` among them `by_loop[its symbol]` in order for each value of its
/// loop variable, computes the program; `any` nodes inside a loop stand in the list of the loop around them.
struct Schedule {
  std::vector<NodeId> once;
  std::unordered_map<int, std::vector<NodeId>> by_loop;
};

[[nodiscard]] Schedule schedule(const Program& program);
/// For what the given nodes need, in place of the program's root.
[[nodiscard]] Schedule schedule(const Program& program, std::span<const NodeId> roots);

}  // namespace flashspan::mask
