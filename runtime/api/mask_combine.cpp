// mask_combine.cpp -- & | ~ of masks: two programs become one, their tensors and scalars kept apart by name.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "codegen/mask/simplify.hpp"
#include "flashspan/mask.hpp"
#include "runtime/api/bind_program.hpp"

namespace flashspan {

namespace {

using attention::AxisRule;
using mask::NodeId;
using mask::Op;

/// `name`, or `name_2`, `name_3`, ... if it is taken; the result is taken from then on.
std::string fresh_name(const std::string& name, std::set<std::string>& taken) {
  std::string fresh = name;
  for (int number = 2; !taken.insert(fresh).second; ++number) fresh = name + "_" + std::to_string(number);
  return fresh;
}

/// Declarations and data of several masks, side by side.
struct Gathered {
  std::vector<mask::ScalarDeclaration> scalars;
  std::vector<mask::TensorDeclaration> tensors;
  mask::Bindings bindings;
  std::vector<AxisRule> axis_rules;
  std::set<std::string> taken;

  void append(const MaskState& state) {
    const int first_tensor = static_cast<int>(tensors.size());
    for (auto scalar : state.program.scalars()) {
      scalar.name = fresh_name(scalar.name, taken);
      scalars.push_back(std::move(scalar));
    }
    for (auto tensor : state.program.tensors()) {
      tensor.name = fresh_name(tensor.name, taken);
      tensors.push_back(std::move(tensor));
    }
    const mask::Bindings& data = state.bindings;
    bindings.scalars.insert(bindings.scalars.end(), data.scalars.begin(), data.scalars.end());
    bindings.tensors.insert(bindings.tensors.end(), data.tensors.begin(), data.tensors.end());
    for (AxisRule rule : state.axis_rules) {
      rule.tensor += first_tensor;
      axis_rules.push_back(rule);
    }
  }
};

/// Where one program's symbols start in the program it is copied into.
struct SymbolOffsets {
  int scalars = 0;
  int tensors = 0;
  int loops = 0;
};

int shifted_symbol(const mask::Node& node, const SymbolOffsets& offsets) {
  if (node.op == Op::scalar) return node.symbol + offsets.scalars;
  if (node.op == Op::lookup) return node.symbol + offsets.tensors;
  if (node.op == Op::loop_variable || node.op == Op::any) return node.symbol + offsets.loops;
  return node.symbol;
}

/// Copies the nodes of `from`; returns its root in `to`.
NodeId copy_nodes(const mask::Program& from, mask::Program& to, const SymbolOffsets& offsets) {
  std::vector<NodeId> place;
  place.reserve(from.nodes().size());
  for (mask::Node node : from.nodes()) {
    for (NodeId& operand : node.operands) operand = place[static_cast<std::size_t>(operand)];
    node.symbol = shifted_symbol(node, offsets);
    place.push_back(to.add(std::move(node)));
  }
  return place[static_cast<std::size_t>(from.root())];
}

template <typename Declarations>
int index_of(const Declarations& declarations, const std::string& name) {
  const auto found = std::ranges::find_if(declarations, [&](const auto& item) { return item.name == name; });
  return found == declarations.end() ? -1 : static_cast<int>(found - declarations.begin());
}

/// Simplifies `program` and brings the gathered data into the order that its declarations then have.
MaskState simplified_state(const mask::Program& program, const Gathered& gathered, const std::string& source) {
  MaskState state;
  state.program = mask::simplify(program);
  state.program.set_source(source);
  for (const auto& declaration : state.program.scalars()) {
    const int from = index_of(gathered.scalars, declaration.name);
    state.bindings.scalars.push_back(gathered.bindings.scalars[static_cast<std::size_t>(from)]);
  }
  for (const auto& declaration : state.program.tensors()) {
    const int from = index_of(gathered.tensors, declaration.name);
    state.bindings.tensors.push_back(gathered.bindings.tensors[static_cast<std::size_t>(from)]);
  }
  for (AxisRule rule : gathered.axis_rules) {
    rule.tensor = index_of(state.program.tensors(), gathered.tensors[static_cast<std::size_t>(rule.tensor)].name);
    if (rule.tensor >= 0) state.axis_rules.push_back(rule);
  }
  return state;
}

Mask combined(const MaskState& left, const MaskState& right, Op op, const char* word) {
  Gathered gathered;
  gathered.append(left);
  gathered.append(right);
  mask::Program program(gathered.scalars, gathered.tensors);
  const NodeId left_root = copy_nodes(left.program, program, {});
  const SymbolOffsets offsets{static_cast<int>(left.program.scalars().size()),
                              static_cast<int>(left.program.tensors().size()), program.fresh_loop()};
  const NodeId right_root = copy_nodes(right.program, program, offsets);
  program.set_root(program.binary(op, left_root, right_root));

  const std::string source = "(" + left.program.source() + ") " + word + " (" + right.program.source() + ")";
  MaskState state = simplified_state(program, gathered, source);
  state.owned = left.owned;
  state.owned.insert(state.owned.end(), right.owned.begin(), right.owned.end());
  state.bound_shapes = left.bound_shapes;
  for (const AttentionShape& shape : right.bound_shapes) {
    if (std::ranges::find(state.bound_shapes, shape) == state.bound_shapes.end()) state.bound_shapes.push_back(shape);
  }
  return api::finish_mask(std::move(state));
}

}  // namespace

Mask Mask::operator&(const Mask& other) const { return combined(*state_, *other.state_, Op::logical_and, "and"); }

Mask Mask::operator|(const Mask& other) const { return combined(*state_, *other.state_, Op::logical_or, "or"); }

Mask Mask::operator~() const {
  Gathered gathered;
  gathered.append(*state_);
  mask::Program program(gathered.scalars, gathered.tensors);
  program.set_root(program.unary(Op::logical_not, copy_nodes(state_->program, program, {})));
  MaskState state = simplified_state(program, gathered, "not (" + state_->program.source() + ")");
  state.owned = state_->owned;
  state.bound_shapes = state_->bound_shapes;
  return api::finish_mask(std::move(state));
}

}  // namespace flashspan
