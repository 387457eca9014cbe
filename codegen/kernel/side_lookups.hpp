// side_lookups.hpp -- the lookups that one side of a tile asks for alone: made once a row or once a column of a tile,
// they need not be made again for every pair.
#pragma once

#include <vector>

#include "codegen/mask/program.hpp"

namespace flashspan::kernel {

/// Lookups outside of loops, at most max_side_lookups a side; the others stay where they are.
struct SideLookups {
  std::vector<mask::NodeId> rows;     ///< that do not depend on k
  std::vector<mask::NodeId> columns;  ///< that depend on k and not on q
};
inline constexpr std::size_t max_side_lookups = 8;
[[nodiscard]] SideLookups side_lookups(const mask::Program& program);

/// A selection of a program's nodes.
using NodeSelection = std::vector<bool>;
/// What `results` are computed from; nothing beyond the nodes of `given`.
[[nodiscard]] NodeSelection nodes_behind(const mask::Program& program, const std::vector<mask::NodeId>& results,
                                         const NodeSelection& given);

}  // namespace flashspan::kernel
