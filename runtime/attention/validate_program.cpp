// validate_program.cpp -- a mask's or score's data against the call that it is used in.
#include "runtime/attention/validate_program.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include "runtime/attention/tensor_rule.hpp"

namespace flashspan::attention {

namespace {

Result<void> check_size(const char* argument, std::int64_t size, std::int64_t largest) {
  if (size >= 0 && size <= largest) return {};
  return bad_argument(argument, std::to_string(size), "0 to " + std::to_string(largest));
}

std::int64_t size_of(mask::Variable variable, const AttentionShape& shape) {
  switch (variable) {
    case mask::Variable::b:
      return shape.batch;
    case mask::Variable::h:
      return shape.query_heads;
    case mask::Variable::q:
      return shape.q_len;
    case mask::Variable::k:
      return shape.kv_len;
    case mask::Variable::q_len:
    case mask::Variable::kv_len:
    case mask::Variable::score:
      break;
  }
  return 0;
}

constexpr std::array indices{mask::Variable::b, mask::Variable::h, mask::Variable::q, mask::Variable::k};

std::string names_of(mask::VariableSet variables) {
  std::string text;
  for (mask::Variable variable : indices) {
    if ((variables & mask::set_of(variable)) == 0) continue;
    text += (text.empty() ? "" : " and ") + std::string(to_string(variable));
  }
  return text;
}

/// The bare index variable that `node` is, or nothing.
mask::VariableSet bare_index(const mask::Node& node) {
  if (node.op != mask::Op::variable) return 0;
  const mask::VariableSet variable = 1u << node.symbol;
  const mask::VariableSet index_variables = mask::set_of(mask::Variable::b) | mask::set_of(mask::Variable::h) |
                                            mask::set_of(mask::Variable::q) | mask::set_of(mask::Variable::k);
  return variable & index_variables;
}

Result<void> check_axis(const std::string& argument, const BoundProgram& program, const AxisRule& rule,
                        const AttentionShape& shape) {
  std::int64_t needed = 0;
  for (mask::Variable variable : indices) {
    if ((rule.indexed_by & mask::set_of(variable)) != 0) needed = std::max(needed, size_of(variable, shape));
  }
  const TensorView& view = program.bindings.tensors[static_cast<std::size_t>(rule.tensor)];
  const std::int64_t length = view.shape[static_cast<std::size_t>(rule.axis)];
  if (length == needed || (length > needed && !rule.exact)) return {};
  const std::string& name = program.program.tensors()[static_cast<std::size_t>(rule.tensor)].name;
  return bad_argument(argument + " tensor '" + name + "'",
                      to_string(view) + " (axis " + std::to_string(rule.axis) + " is " + std::to_string(length) + ")",
                      std::string(rule.exact ? "" : "at least ") + std::to_string(needed) + " along axis " +
                          std::to_string(rule.axis) + ", indexed by " + names_of(rule.indexed_by));
}

}  // namespace

Result<void> check_shape(const AttentionShape& shape) {
  constexpr std::int64_t largest_count = std::numeric_limits<std::int32_t>::max();
  if (auto size = check_size("batch", shape.batch, largest_count); !size) return size;
  if (auto size = check_size("query heads", shape.query_heads, largest_count); !size) return size;
  if (auto size = check_size("key/value heads", shape.kv_heads, largest_count); !size) return size;
  if (auto size = check_size("q_len", shape.q_len, max_sequence_length); !size) return size;
  if (auto size = check_size("kv_len", shape.kv_len, max_sequence_length); !size) return size;
  const bool grouped = shape.kv_heads == 0 ? shape.query_heads == 0 : shape.query_heads % shape.kv_heads == 0;
  if (!grouped) {
    return bad_argument("query heads", std::to_string(shape.query_heads),
                        "a multiple of the " + std::to_string(shape.kv_heads) + " key/value heads");
  }
  return {};
}

std::vector<AxisRule> axis_rules_of(const mask::Program& program, bool exact) {
  std::map<std::pair<int, int>, AxisRule> rules;
  std::map<std::pair<int, int>, bool> computed;
  for (const mask::Node& node : program.nodes()) {
    if (node.op != mask::Op::lookup) continue;
    for (std::size_t axis = 0; axis < node.operands.size(); ++axis) {
      const std::pair<int, int> place{node.symbol, static_cast<int>(axis)};
      const mask::VariableSet index = bare_index(program.node(node.operands[axis]));
      if (index == 0) computed[place] = true;
      AxisRule& rule = rules[place];
      rule.tensor = place.first;
      rule.axis = place.second;
      rule.indexed_by |= index;
      rule.exact = exact;
    }
  }
  std::vector<AxisRule> result;
  for (const auto& [place, rule] : rules) {
    if (rule.indexed_by != 0 && !computed.contains(place)) result.push_back(rule);
  }
  return result;
}

Result<void> check_program(const std::string& argument, const BoundProgram& program, const AttentionShape& shape,
                           Device device) {
  const auto& tensors = program.bindings.tensors;
  if (tensors.size() > static_cast<std::size_t>(largest_tensor_count)) {
    return Error{ErrorCode::unsupported, argument, std::to_string(tensors.size()) + " tensors",
                 "at most " + std::to_string(largest_tensor_count), ""};
  }
  if (program.bindings.scalars.size() > static_cast<std::size_t>(largest_scalar_count)) {
    return Error{ErrorCode::unsupported, argument, std::to_string(program.bindings.scalars.size()) + " scalars",
                 "at most " + std::to_string(largest_scalar_count), ""};
  }
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    if (tensors[index].device == device) continue;
    return bad_argument(argument + " tensor '" + program.program.tensors()[index].name + "'",
                        "a tensor on " + to_string(tensors[index].device),
                        "tensors on " + to_string(device) + " (" + argument + ".to(device) copies them there)");
  }
  for (const AxisRule& rule : program.axis_rules) {
    if (auto axis = check_axis(argument, program, rule, shape); !axis) return axis;
  }
  return {};
}

Result<void> check_bound_shapes(const BoundMask& mask, const AttentionShape& shape) {
  const auto text = [](const AttentionShape& sizes) {
    return "B = " + std::to_string(sizes.batch) + ", Hq = " + std::to_string(sizes.query_heads) +
           ", Hkv = " + std::to_string(sizes.kv_heads) + ", Sq = " + std::to_string(sizes.q_len) +
           ", Sk = " + std::to_string(sizes.kv_len);
  };
  for (const AttentionShape& bound : mask.bound_shapes) {
    const bool equal = bound.batch == shape.batch && bound.query_heads == shape.query_heads &&
                       bound.kv_heads == shape.kv_heads && bound.q_len == shape.q_len && bound.kv_len == shape.kv_len;
    if (!equal)
      return bad_argument("mask", "a call of " + text(shape), "calls of " + text(bound) + ", as it was built for");
  }
  return {};
}

Result<void> check_mask(const BoundMask& mask, const AttentionShape& shape, Device device) {
  if (auto bound = check_bound_shapes(mask, shape); !bound) return bound;
  return check_program("mask", mask, shape, device);
}

Result<void> check_in_host_memory(const std::string& argument, const BoundProgram& program) {
  const auto& tensors = program.bindings.tensors;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    if (tensors[index].device.kind == DeviceKind::cpu) continue;
    return bad_argument(argument + " tensor '" + program.program.tensors()[index].name + "'",
                        "a tensor on " + to_string(tensors[index].device),
                        "tensors in host memory (" + argument + ".to(cpu) copies them there)");
  }
  return {};
}

}  // namespace flashspan::attention
