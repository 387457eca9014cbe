// rebuild.hpp -- the live part of a program, in canonical order.
#pragma once

#include <span>
#include <vector>

#include "codegen/mask/program.hpp"

namespace flashspan::mask {

enum class Declarations { keep_all, drop_unused };

/// Nodes that the root uses, operands before users, left operands first.
[[nodiscard]] std::vector<NodeId> live_nodes(const Program& program);
/// The same for several roots, the first one's nodes first.
[[nodiscard]] std::vector<NodeId> live_nodes(const Program& program, std::span<const NodeId> roots);

/// `program` with its live nodes only, in the order of live_nodes(), loops numbered from 0 in that order.
/// Two programs of equal canonical text become equal node for node, save that a loop which the text writes
/// twice may be one node or two.
[[nodiscard]] Program rebuild(const Program& program, Declarations declarations);

}  // namespace flashspan::mask
