#include "codegen/kernel/emit_llvm_program.hpp"

#include <algorithm>
#include <limits>

namespace flashspan::kernel {

using mask::NodeId;
using mask::Op;
using mask::ValueType;
using mask::Variable;
using Kind = IrValue::Kind;

namespace {

bool fits_32_bits(const mask::Interval& range) {
  return range.lo >= std::numeric_limits<std::int32_t>::min() && range.hi <= std::numeric_limits<std::int32_t>::max();
}

const char* scalar_type(Kind kind) {
  switch (kind) {
    case Kind::boolean:
      return "i1";
    case Kind::int32:
      return "i32";
    case Kind::int64:
      return "i64";
    case Kind::real:
      return "float";
  }
  return "";
}

bool contains(const std::vector<int>& loops, int loop) { return std::ranges::find(loops, loop) != loops.end(); }

std::size_t index_of(NodeId id) { return static_cast<std::size_t>(id); }

// Kept among the loops' variables, under a number that no loop has: the lanes in which the body around is asked for. In
// the others the variables around may have values that the language never gives them, and a loop bounded by these may
// be as long as integers go.
constexpr int asked_lanes = -1;

// The lanes whose key there is: the last vector of a row reaches past them.
std::string lanes_of_keys(IrWriter& ir, const std::map<Variable, IrValue>& variables) {
  const std::string count = ir.define(concat("trunc i64 ", variables.at(Variable::kv_len).name, " to i32"));
  return ir.binary("icmp slt", ir_ints, variables.at(Variable::k).name, ir.splat("i32", count));
}

}  // namespace

std::string type_of(const IrValue& value) {
  const std::string scalar = scalar_type(value.kind);
  return value.vector ? concat("<", ir_lanes, " x ", scalar, ">") : scalar;
}

ProgramEmitter::ProgramEmitter(IrWriter& ir, const mask::Program& program)
    : ir_(ir),
      program_(program),
      ranges_(mask::value_ranges(program)),
      dependencies_(program.dependencies_by_node()),
      free_loops_(program.free_loops_by_node()),
      needed_(program.nodes().size(), false),
      values_(program.nodes().size()) {
  needed_[index_of(program.root())] = true;
  for (std::size_t i = program.nodes().size(); i-- > 0;) {
    if (!needed_[i]) continue;
    for (NodeId operand : program.nodes()[i].operands) needed_[index_of(operand)] = true;
  }
}

void ProgramEmitter::load_program_data() {
  // struct ProgramData { ptr tensors; ptr integers; ptr reals; i64 q_len; i64 kv_len; } of tile_functions.hpp.
  const auto field = [&](const char* type, int index) {
    return ir_.load(type, ir_.element_pointer("i64", "%program", std::to_string(index)), 8);
  };
  const std::string tensors = field("ptr", 0);
  const std::string integers = field("ptr", 1);
  const std::string reals = field("ptr", 2);
  set_variable(Variable::q_len, {field("i64", 3), Kind::int64, false});
  set_variable(Variable::kv_len, {field("i64", 4), Kind::int64, false});
  constexpr int lookup_tensor_words = 11;  // struct LookupTensor { ptr data; i64 extent[5]; i64 stride[5]; }
  for (std::size_t t = 0; t < program_.tensors().size(); ++t) {
    const auto word = [&](const char* type, int index) {
      const auto offset = static_cast<int>(t) * lookup_tensor_words + index;
      return ir_.load(type, ir_.element_pointer("i64", tensors, std::to_string(offset)), 8);
    };
    Tensor tensor{word("ptr", 0), {}, {}};
    for (int axis = 0; axis < program_.tensors()[t].rank; ++axis) {
      tensor.extents.push_back(word("i64", 1 + axis));
      tensor.strides.push_back(word("i64", 6 + axis));
    }
    tensors_.push_back(tensor);
  }
  for (std::size_t s = 0; s < program_.scalars().size(); ++s) {
    const std::string position = std::to_string(s);
    const bool integer = program_.scalars()[s].type == ValueType::integer;
    const std::string name = integer ? ir_.load("i64", ir_.element_pointer("i64", integers, position), 8)
                                     : ir_.load("float", ir_.element_pointer("float", reals, position), 4);
    scalars_.push_back({name, integer ? Kind::int64 : Kind::real, false});
  }
}

void ProgramEmitter::set_variable(Variable variable, IrValue value) { variables_[variable] = std::move(value); }

ProgramEmitter::Level ProgramEmitter::level_of(NodeId id) const {
  const mask::VariableSet set = dependencies_[index_of(id)];
  if ((set & (mask::set_of(Variable::q) | mask::set_of(Variable::score))) != 0) return Level::row;
  return (set & mask::set_of(Variable::k)) != 0 ? Level::key_vector : Level::tile;
}

void ProgramEmitter::emit_level(Level level) {
  for (NodeId id = 0; id < static_cast<NodeId>(program_.nodes().size()); ++id) {
    if (needed_[index_of(id)] && free_loops_[index_of(id)].empty() && level_of(id) == level) {
      values_[index_of(id)] = emit(id);
    }
  }
}

std::string ProgramEmitter::root_vector() {
  const IrValue& root = value(program_.root());
  const bool number = program_.type() != ValueType::boolean;
  return as_vector(number ? as_kind(root, Kind::real) : root).name;
}

Kind ProgramEmitter::integer_kind(NodeId id) const {
  return fits_32_bits(ranges_[index_of(id)]) ? Kind::int32 : Kind::int64;
}

IrValue ProgramEmitter::as_vector(const IrValue& value) {
  if (value.vector) return value;
  return {ir_.splat(scalar_type(value.kind), value.name), value.kind, true};
}

IrValue ProgramEmitter::as_kind(const IrValue& value, Kind kind) {
  if (value.kind == kind) return value;
  IrValue result{"", kind, value.vector};
  const char* instruction = kind == Kind::real ? "sitofp" : kind == Kind::int64 ? "sext" : "trunc";
  result.name = ir_.define(concat(instruction, " ", type_of(value), " ", value.name, " to ", type_of(result)));
  return result;
}

void ProgramEmitter::make_alike(IrValue& left, IrValue& right) {
  if (left.kind != right.kind) {
    left = as_kind(left, Kind::int64);
    right = as_kind(right, Kind::int64);
  }
  if (left.vector != right.vector) {
    left = as_vector(left);
    right = as_vector(right);
  }
}

IrValue ProgramEmitter::operation(const char* name, const IrValue& left, const IrValue& right) {
  return {ir_.binary(name, type_of(left).c_str(), left.name, right.name), left.kind, left.vector};
}

IrValue ProgramEmitter::compare(const char* instruction, const IrValue& left, const IrValue& right) {
  return {ir_.binary(instruction, type_of(left).c_str(), left.name, right.name), Kind::boolean, left.vector};
}

IrValue ProgramEmitter::choose(const IrValue& condition, IrValue if_true, IrValue if_false) {
  make_alike(if_true, if_false);
  if (condition.vector) {
    if_true = as_vector(if_true);
    if_false = as_vector(if_false);
  }
  const std::string type = type_of(if_true);
  return {ir_.define(concat("select ", type_of(condition), " ", condition.name, ", ", type, " ", if_true.name, ", ",
                            type, " ", if_false.name)),
          if_true.kind, if_true.vector};
}

IrValue ProgramEmitter::constant(long long number, const IrValue& like) const {
  const std::string text = std::to_string(number);
  return {like.vector ? concat("splat (", scalar_type(like.kind), " ", text, ")") : text, like.kind, like.vector};
}

IrValue ProgramEmitter::emit(NodeId id) {
  switch (program_.node(id).op) {
    case Op::integer_constant:
    case Op::real_constant:
    case Op::boolean_constant:
    case Op::variable:
    case Op::scalar:
    case Op::loop_variable:
      return emit_leaf(id);
    case Op::lookup:
      return emit_lookup(id);
    case Op::add:
    case Op::subtract:
    case Op::multiply:
    case Op::minimum:
    case Op::maximum:
    case Op::negate:
    case Op::absolute:
      return emit_arithmetic(id);
    case Op::floor_divide:
    case Op::modulo:
      return emit_division(id);
    case Op::divide:
    case Op::tanh:
    case Op::exp:
    case Op::log:
    case Op::sqrt:
    case Op::to_real:
      return emit_elementary(id);
    case Op::select:
      return emit_select(id);
    case Op::less:
    case Op::less_equal:
    case Op::equal:
    case Op::not_equal:
      return emit_comparison(id);
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not:
      return emit_logic(id);
    case Op::any:
      return emit_any(id);
  }
  return {};
}

IrValue ProgramEmitter::emit_leaf(NodeId id) {
  const mask::Node& node = program_.node(id);
  if (node.op == Op::integer_constant) return {std::to_string(node.integer), integer_kind(id), false};
  if (node.op == Op::real_constant) return {float_literal(node.real), Kind::real, false};
  if (node.op == Op::boolean_constant) return {node.integer != 0 ? "true" : "false", Kind::boolean, false};
  if (node.op == Op::scalar) return scalars_[static_cast<std::size_t>(node.symbol)];
  const IrValue& stored =
      node.op == Op::variable ? variables_.at(static_cast<Variable>(node.symbol)) : loop_variables_.at(node.symbol);
  return stored.kind == Kind::real ? stored : as_kind(stored, integer_kind(id));
}

IrValue ProgramEmitter::emit_lookup(NodeId id) {
  const mask::Node& node = program_.node(id);
  const Tensor& tensor = tensors_[static_cast<std::size_t>(node.symbol)];
  const DType dtype = program_.tensors()[static_cast<std::size_t>(node.symbol)].dtype;
  IrValue inside{"true", Kind::boolean, false};
  IrValue offset{"0", Kind::int64, false};
  for (std::size_t axis = 0; axis < node.operands.size(); ++axis) {
    const IrValue index = as_kind(value(node.operands[axis]), Kind::int64);
    IrValue extent{tensor.extents[axis], Kind::int64, false};
    IrValue stride{tensor.strides[axis], Kind::int64, false};
    if (index.vector) {
      extent = as_vector(extent);
      stride = as_vector(stride);
    }
    // Unsigned, so that a negative index is outside as well.
    IrValue in_axis = compare("icmp ult", index, extent);
    IrValue step = operation("mul", index, stride);
    make_alike(inside, in_axis);
    make_alike(offset, step);
    inside = operation("and", inside, in_axis);
    offset = operation("add", offset, step);
  }
  const char* element = dtype == DType::f32   ? "float"
                        : dtype == DType::i32 ? "i32"
                        : dtype == DType::f16 ? "half"
                                              : "i16";
  IrValue raw{"", dtype == DType::i32 ? Kind::int32 : Kind::real, offset.vector};
  const int align = size_in_bytes(dtype);
  if (offset.vector) {
    const std::string pointers =
        ir_.define(concat("getelementptr ", element, ", ptr ", tensor.data, ", ", ir_longs, " ", offset.name));
    // 16-bit elements are gathered as integers; halves are then seen as such.
    const bool half = dtype == DType::f16;
    const char* stored = half ? "i16" : element;
    const std::string vector = concat("<16 x ", stored, ">");
    const std::string suffix = dtype == DType::f32 ? "v16f32" : dtype == DType::i32 ? "v16i32" : "v16i16";
    raw.name = ir_.define(concat("call ", vector, " @llvm.masked.gather.", suffix, ".v16p0(<16 x ptr> ", pointers,
                                 ", i32 ", align, ", ", ir_bools, " ", inside.name, ", ", vector, " zeroinitializer)"));
    if (half) raw.name = ir_.define(concat("bitcast <16 x i16> ", raw.name, " to <16 x half>"));
  } else {
    const std::string address = ir_.element_pointer(element, tensor.data, offset.name);
    const std::string safe = ir_.define(concat("select i1 ", inside.name, ", ptr ", address, ", ptr @zero_element"));
    raw.name = ir_.load(element, safe, align);
  }
  const std::string lanes = raw.vector ? concat("<", ir_lanes, " x ") : "";
  const std::string close = raw.vector ? ">" : "";
  if (dtype == DType::f16) {
    raw.name = ir_.define(concat("fpext ", lanes, "half", close, " ", raw.name, " to ", type_of(raw)));
  }
  if (dtype == DType::bf16) {
    const IrValue bits{ir_.define(concat("zext ", lanes, "i16", close, " ", raw.name, " to ", lanes, "i32", close)),
                       Kind::int32, raw.vector};
    const IrValue high = operation("shl", bits, constant(16, bits));
    raw.name = ir_.define(concat("bitcast ", type_of(bits), " ", high.name, " to ", type_of(raw)));
  }
  return raw;
}

std::string ProgramEmitter::element_number_vector() {
  const mask::Node& node = program_.node(program_.root());
  const Tensor& tensor = tensors_[static_cast<std::size_t>(node.symbol)];
  IrValue inside{"true", Kind::boolean, false};
  IrValue number{"0", Kind::int64, false};
  for (std::size_t axis = 0; axis < node.operands.size(); ++axis) {
    IrValue index = as_kind(value(node.operands[axis]), Kind::int64);
    IrValue extent{tensor.extents[axis], Kind::int64, false};
    make_alike(index, extent);
    // Unsigned, so that a negative index is outside as well.
    IrValue in_axis = compare("icmp ult", index, extent);
    make_alike(inside, in_axis);
    inside = operation("and", inside, in_axis);
    make_alike(number, extent);
    number = operation("mul", number, extent);
    make_alike(number, index);
    number = operation("add", number, index);
  }
  return as_vector(choose(inside, number, {"-1", Kind::int64, false})).name;
}

IrValue ProgramEmitter::emit_select(NodeId id) {
  const mask::Node& node = program_.node(id);
  const IrValue chosen = choose(value(node.operands[0]), value(node.operands[1]), value(node.operands[2]));
  return node.type == ValueType::integer ? as_kind(chosen, integer_kind(id)) : chosen;
}

IrValue ProgramEmitter::emit_comparison(NodeId id) {
  const mask::Node& node = program_.node(id);
  IrValue left = value(node.operands[0]);
  IrValue right = value(node.operands[1]);
  // A 64-bit scalar against 32-bit lanes: the scalar is brought next to the lanes' range, which keeps every answer.
  const auto shrink = [&](IrValue& wide, const IrValue& lanes, NodeId lanes_id) {
    const mask::Interval range = ranges_[index_of(lanes_id)];
    const bool applies = wide.kind == Kind::int64 && !wide.vector && lanes.kind == Kind::int32 && lanes.vector &&
                         fits_32_bits({range.lo - 1, range.hi + 1});
    if (!applies) return;
    const IrValue lowest{std::to_string(range.lo - 1), Kind::int64, false};
    const IrValue highest{std::to_string(range.hi + 1), Kind::int64, false};
    wide = choose(compare("icmp slt", wide, lowest), lowest, wide);
    wide = as_kind(choose(compare("icmp sgt", wide, highest), highest, wide), Kind::int32);
  };
  shrink(left, right, node.operands[1]);
  shrink(right, left, node.operands[0]);
  make_alike(left, right);
  const bool real = left.kind == Kind::real;
  const bool boolean = left.kind == Kind::boolean;
  switch (node.op) {
    case Op::less:
      return compare(real ? "fcmp olt" : "icmp slt", left, right);
    case Op::less_equal:
      return compare(real ? "fcmp ole" : "icmp sle", left, right);
    case Op::equal:
      return compare(real ? "fcmp oeq" : "icmp eq", left, right);
    default:
      return boolean ? operation("xor", left, right) : compare(real ? "fcmp une" : "icmp ne", left, right);
  }
}

IrValue ProgramEmitter::emit_logic(NodeId id) {
  const mask::Node& node = program_.node(id);
  IrValue left = value(node.operands[0]);
  if (node.op == Op::logical_not) {
    return operation("xor", left, {left.vector ? "splat (i1 true)" : "true", Kind::boolean, left.vector});
  }
  IrValue right = value(node.operands[1]);
  make_alike(left, right);
  return operation(node.op == Op::logical_and ? "and" : "or", left, right);
}

IrValue ProgramEmitter::emit_loop_body(NodeId id, int loop) {
  if (!contains(free_loops_[index_of(id)], loop)) return value(id);
  // Operands stand before their users, so one pass over the nodes up to the body emits it; nodes of loops inside are
  // left to the `any` that closes them.
  std::vector<bool> below(program_.nodes().size(), false);
  below[index_of(id)] = true;
  for (NodeId node = id; node >= 0; --node) {
    if (!below[index_of(node)]) continue;
    for (NodeId operand : program_.node(node).operands) below[index_of(operand)] = true;
  }
  for (NodeId node = 0; node <= id; ++node) {
    const std::vector<int>& loops = free_loops_[index_of(node)];
    const bool open = std::ranges::all_of(loops, [&](int free) { return loop_variables_.contains(free); });
    if (below[index_of(node)] && contains(loops, loop) && open) values_[index_of(node)] = emit(node);
  }
  return value(id);
}

IrValue ProgramEmitter::emit_any(NodeId id) {
  const mask::Node& node = program_.node(id);
  const IrValue begin = as_kind(value(node.operands[0]), Kind::int64);
  const IrValue end = as_kind(value(node.operands[1]), Kind::int64);
  const bool vector = begin.vector || end.vector;
  const IrValue first = vector ? as_vector(begin) : begin;
  const IrValue last = vector ? as_vector(end) : end;
  const std::map<int, IrValue> around = loop_variables_;
  const bool differs_by_key = (dependencies_[index_of(id)] & mask::set_of(Variable::k)) != 0;
  const std::string asked = around.contains(asked_lanes) ? around.at(asked_lanes).name
                            : differs_by_key             ? lanes_of_keys(ir_, variables_)
                                                         : "splat (i1 true)";
  std::string running;  // the lanes that take the turn: asked for, not yet found true, not yet at their end
  const IrWriter::Values after = ir_.loop_while(
      {{type_of(first), first.name}, {ir_bools, asked}},
      [&](const IrWriter::Values& now) {
        const IrValue before_end = compare("icmp slt", {now[0], Kind::int64, vector}, last);
        running = ir_.binary("and", ir_bools, as_vector(before_end).name, now[1]);
        return ir_.define(concat("call i1 @llvm.vector.reduce.or.v16i1(", ir_bools, " ", running, ")"));
      },
      [&](const IrWriter::Values& now) {
        const IrValue counter{now[0], Kind::int64, vector};
        const IrValue turn{running, Kind::boolean, true};
        loop_variables_[node.symbol] = counter;
        loop_variables_[asked_lanes] = turn;
        const IrValue holds = operation("and", as_vector(emit_loop_body(node.operands[2], node.symbol)), turn);
        loop_variables_ = around;
        const std::string open = ir_.binary("xor", ir_bools, now[1], holds.name);
        const IrValue next = operation("add", counter, constant(1, counter));
        // A lane that does not run stays where it is, so that it cannot wrap and start again.
        return IrWriter::Values{vector ? choose(turn, next, counter).name : next.name, open};
      });
  return {ir_.binary("xor", ir_bools, asked, after[1]), Kind::boolean, true};
}

}  // namespace flashspan::kernel
