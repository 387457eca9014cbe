// rebuild.cpp -- see rebuild.hpp.
#include "codegen/mask/rebuild.hpp"

#include <array>
#include <map>

namespace flashspan::mask {
namespace {

// For every declaration its new place; -1 if no live node uses it.
struct NewPlaces {
  std::vector<int> scalars;
  std::vector<int> tensors;
};

NewPlaces places_of_used(const Program& program, const std::vector<NodeId>& live, Declarations declarations) {
  const int unused = declarations == Declarations::keep_all ? 0 : -1;
  NewPlaces places{.scalars = std::vector<int>(program.scalars().size(), unused),
                   .tensors = std::vector<int>(program.tensors().size(), unused)};
  for (const NodeId id : live) {
    const Node& node = program.node(id);
    if (node.op == Op::scalar) places.scalars[static_cast<std::size_t>(node.symbol)] = 0;
    if (node.op == Op::lookup) places.tensors[static_cast<std::size_t>(node.symbol)] = 0;
  }
  const auto number = [](std::vector<int>& of) {
    int next = 0;
    for (int& place : of) {
      if (place >= 0) place = next++;
    }
  };
  number(places.scalars);
  number(places.tensors);
  return places;
}

template <typename Declaration>
std::vector<Declaration> kept(const std::vector<Declaration>& declarations, const std::vector<int>& places) {
  std::vector<Declaration> result;
  for (std::size_t i = 0; i < declarations.size(); ++i) {
    if (places[i] >= 0) result.push_back(declarations[i]);
  }
  return result;
}

}  // namespace

std::vector<NodeId> live_nodes(const Program& program, std::span<const NodeId> roots) {
  std::vector<NodeId> order;
  struct Visit {
    NodeId node;
    std::size_t next_operand;
  };
  std::vector<char> seen(program.nodes().size(), 0);
  std::vector<Visit> path;  // a stack of our own: chains may be long
  const auto enter = [&](NodeId node) {
    if (seen[static_cast<std::size_t>(node)] != 0) return;
    seen[static_cast<std::size_t>(node)] = 1;
    path.push_back({node, 0});
  };
  for (const NodeId root : roots) {
    enter(root);
    while (!path.empty()) {
      Visit& visit = path.back();
      const std::vector<NodeId>& operands = program.node(visit.node).operands;
      if (visit.next_operand < operands.size()) {
        enter(operands[visit.next_operand++]);
        continue;
      }
      order.push_back(visit.node);
      path.pop_back();
    }
  }
  return order;
}

std::vector<NodeId> live_nodes(const Program& program) {
  if (program.nodes().empty()) return {};
  return live_nodes(program, std::array{program.root()});
}

Program rebuild(const Program& program, Declarations declarations) {
  const std::vector<NodeId> live = live_nodes(program);
  const NewPlaces places = places_of_used(program, live, declarations);
  Program result(kept(program.scalars(), places.scalars), kept(program.tensors(), places.tensors));
  result.set_source(program.source());
  std::vector<NodeId> renamed(program.nodes().size(), -1);
  std::map<int, int> loops;
  for (const NodeId id : live) {
    Node node = program.node(id);
    for (NodeId& operand : node.operands) operand = renamed[static_cast<std::size_t>(operand)];
    if (node.op == Op::scalar) node.symbol = places.scalars[static_cast<std::size_t>(node.symbol)];
    if (node.op == Op::lookup) node.symbol = places.tensors[static_cast<std::size_t>(node.symbol)];
    if (node.op == Op::loop_variable || node.op == Op::any) {
      node.symbol = loops.try_emplace(node.symbol, static_cast<int>(loops.size())).first->second;
    }
    renamed[static_cast<std::size_t>(id)] = result.add(std::move(node));
  }
  if (!live.empty()) result.set_root(renamed[static_cast<std::size_t>(program.root())]);
  return result;
}

}  // namespace flashspan::mask
