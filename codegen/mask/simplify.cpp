// simplify.cpp -- see simplify.hpp. The laws are in rewrite_rules.cpp.
#include "codegen/mask/simplify.hpp"

#include "codegen/mask/rewrite_rules.hpp"

namespace flashspan::mask {
namespace {

Program simplified_once(const Program& program, Declarations declarations) {
  Program result(program.scalars(), program.tensors());
  result.set_source(program.source());
  Rewriter rewriter(result);
  std::vector<NodeId> rewritten(program.nodes().size(), -1);
  for (const NodeId id : live_nodes(program)) {
    Node node = program.node(id);
    for (NodeId& operand : node.operands) operand = rewritten[static_cast<std::size_t>(operand)];
    rewritten[static_cast<std::size_t>(id)] = rewriter.add(std::move(node));
  }
  result.set_root(rewritten[static_cast<std::size_t>(program.root())]);
  return rebuild(result, declarations);
}

}  // namespace

Program simplify(const Program& program, Declarations declarations) {
  // A law may make room for another one further down; two passes nearly always do.
  constexpr int most_passes = 8;
  Program current = simplified_once(program, declarations);
  for (int pass = 1; pass < most_passes; ++pass) {
    Program next = simplified_once(current, declarations);
    if (next.nodes() == current.nodes()) break;
    current = std::move(next);
  }
  return current;
}

}  // namespace flashspan::mask
