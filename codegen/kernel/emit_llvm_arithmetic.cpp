// emit_llvm_arithmetic.cpp -- arithmetic of ProgramEmitter: wrapping integers, floor division, binary32 functions.
#include "codegen/kernel/emit_llvm_program.hpp"

namespace flashspan::kernel {

using mask::NodeId;
using mask::Op;
using mask::ValueType;
using Kind = IrValue::Kind;

IrValue ProgramEmitter::emit_arithmetic(NodeId id) {
  return program_.node(id).type == ValueType::real ? emit_real_arithmetic(id) : emit_integer_arithmetic(id);
}

IrValue ProgramEmitter::emit_integer_arithmetic(NodeId id) {
  const mask::Node& node = program_.node(id);
  const bool unary = node.operands.size() == 1;
  IrValue left = value(node.operands[0]);
  IrValue right = unary ? constant(0, left) : value(node.operands[1]);
  // 32 bits are enough only if the operands and the result all fit; otherwise the operation runs in 64.
  const Kind result_kind = integer_kind(id);
  if (result_kind == Kind::int64) left = as_kind(left, Kind::int64);
  make_alike(left, right);
  IrValue result;
  switch (node.op) {
    case Op::add:
      result = operation("add", left, right);
      break;
    case Op::subtract:
      result = operation("sub", left, right);
      break;
    case Op::multiply:
      result = operation("mul", left, right);
      break;
    case Op::minimum:
      result = choose(compare("icmp slt", right, left), right, left);
      break;
    case Op::maximum:
      result = choose(compare("icmp sgt", right, left), right, left);
      break;
    case Op::negate:
      result = operation("sub", right, left);
      break;
    default:
      result = choose(compare("icmp slt", left, right), operation("sub", right, left), left);
      break;
  }
  return as_kind(result, result_kind);
}

IrValue ProgramEmitter::emit_real_arithmetic(NodeId id) {
  const mask::Node& node = program_.node(id);
  IrValue left = value(node.operands[0]);
  if (node.op == Op::negate)
    return {ir_.define(concat("fneg ", type_of(left), " ", left.name)), Kind::real, left.vector};
  if (node.op == Op::absolute) {
    left = as_vector(left);
    return {ir_.define(concat("call <16 x float> @llvm.fabs.v16f32(<16 x float> ", left.name, ")")), Kind::real, true};
  }
  IrValue right = value(node.operands[1]);
  make_alike(left, right);
  switch (node.op) {
    case Op::add:
      return operation("fadd", left, right);
    case Op::subtract:
      return operation("fsub", left, right);
    case Op::multiply:
      return operation("fmul", left, right);
    case Op::minimum:
      return choose(compare("fcmp olt", left, right), left, right);
    default:
      return choose(compare("fcmp ogt", left, right), left, right);
  }
}

IrValue ProgramEmitter::emit_division(NodeId id) {
  const mask::Node& node = program_.node(id);
  IrValue dividend = value(node.operands[0]);
  IrValue divisor = value(node.operands[1]);
  const Kind result_kind = integer_kind(id);
  if (result_kind == Kind::int64) dividend = as_kind(dividend, Kind::int64);
  make_alike(dividend, divisor);
  const mask::Node& divisor_node = program_.node(node.operands[1]);
  if (divisor_node.op == Op::integer_constant) {
    return as_kind(emit_constant_division(id, dividend, divisor_node.integer), result_kind);
  }
  const IrValue zero = constant(0, dividend);
  const IrValue one = constant(1, dividend);
  const IrValue is_zero = compare("icmp eq", divisor, zero);
  const IrValue is_minus_one = compare("icmp eq", divisor, constant(-1, dividend));
  // Division by 0 and INT_MIN / -1 trap on x86 (#DE), so neither is ever executed.
  const IrValue safe = choose(operation("or", is_zero, is_minus_one), one, divisor);
  IrValue quotient;
  IrValue remainder;
  if (dividend.vector && dividend.kind == Kind::int32) {
    quotient = emit_quotient_in_doubles(dividend, safe);
    remainder = operation("sub", dividend, operation("mul", quotient, safe));
  } else {
    quotient = operation("sdiv", dividend, safe);
    remainder = operation("srem", dividend, safe);
    const IrValue inexact = compare("icmp ne", remainder, zero);
    const IrValue signs_differ = compare("icmp slt", operation("xor", remainder, safe), zero);
    const IrValue round_down = operation("and", inexact, signs_differ);
    quotient = choose(round_down, operation("sub", quotient, one), quotient);
    remainder = choose(round_down, operation("add", remainder, safe), remainder);
  }
  if (node.op == Op::modulo) return as_kind(remainder, result_kind);
  quotient = choose(is_minus_one, operation("sub", zero, dividend), quotient);
  return as_kind(choose(is_zero, zero, quotient), result_kind);
}

// floor(a / b) of 32-bit integers. The binary64 quotient is off by at most 2^-22 / |b|, and a quotient that is no
// integer is at least 1 / |b| away from one, so the floor is exact.
IrValue ProgramEmitter::emit_quotient_in_doubles(const IrValue& dividend, const IrValue& divisor) {
  const std::string a = ir_.define(concat("sitofp ", ir_ints, " ", dividend.name, " to <16 x double>"));
  const std::string b = ir_.define(concat("sitofp ", ir_ints, " ", divisor.name, " to <16 x double>"));
  const std::string exact = ir_.binary("fdiv", "<16 x double>", a, b);
  const std::string floor = ir_.define(concat("call <16 x double> @llvm.floor.v16f64(<16 x double> ", exact, ")"));
  return {ir_.define(concat("fptosi <16 x double> ", floor, " to ", ir_ints)), Kind::int32, true};
}

IrValue ProgramEmitter::emit_constant_division(NodeId id, IrValue dividend, long long divisor) {
  const bool modulo = program_.node(id).op == Op::modulo;
  const IrValue zero = constant(0, dividend);
  if (divisor == 0) return zero;
  if (divisor == -1) return modulo ? zero : operation("sub", zero, dividend);
  if (divisor > 0 && (divisor & (divisor - 1)) == 0) {
    if (modulo) return operation("and", dividend, constant(divisor - 1, dividend));
    int shift = 0;
    while ((1LL << shift) < divisor) ++shift;
    return operation("ashr", dividend, constant(shift, dividend));
  }
  const IrValue by = constant(divisor, dividend);
  const IrValue quotient = operation("sdiv", dividend, by);
  const IrValue remainder = operation("sub", dividend, operation("mul", quotient, by));
  const IrValue inexact = compare("icmp ne", remainder, zero);
  const IrValue signs_differ = compare("icmp slt", operation("xor", remainder, by), zero);
  const IrValue round_down = operation("and", inexact, signs_differ);
  return modulo ? choose(round_down, operation("add", remainder, by), remainder)
                : choose(round_down, operation("sub", quotient, constant(1, dividend)), quotient);
}

IrValue ProgramEmitter::emit_elementary(NodeId id) {
  const mask::Node& node = program_.node(id);
  IrValue operand = value(node.operands[0]);
  if (node.op == Op::to_real) return as_kind(operand, Kind::real);
  if (node.op == Op::divide) {
    IrValue divisor = value(node.operands[1]);
    make_alike(operand, divisor);
    const IrValue zero{operand.vector ? "zeroinitializer" : "0.0", Kind::real, operand.vector};
    return choose(compare("fcmp oeq", divisor, zero), zero, operation("fdiv", operand, divisor));
  }
  operand = as_vector(operand);
  const char* function = node.op == Op::tanh  ? "@tanh_real"
                         : node.op == Op::exp ? "@exp_real"
                         : node.op == Op::log ? "@llvm.log.v16f32"
                                              : "@llvm.sqrt.v16f32";
  return {ir_.define(concat("call <16 x float> ", function, "(<16 x float> ", operand.name, ")")), Kind::real, true};
}

}  // namespace flashspan::kernel
