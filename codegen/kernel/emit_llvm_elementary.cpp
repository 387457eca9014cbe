// emit_llvm_elementary.cpp -- vector exp and tanh. exp(x) = 2^n * 2^f with n = round(x log2 e): n comes from adding
// 1.5 * 2^23, which leaves it in the low mantissa bits; f from two fused steps, so that it is exact to about 2^-24;
// 2^f on [-1/2, 1/2] from a degree-6 minimax polynomial of relative error 2e-9.
#include <array>

#include "codegen/kernel/emit_llvm_parts.hpp"
#include "codegen/kernel/emit_llvm_writer.hpp"

namespace flashspan::kernel {
namespace {

constexpr double log2e_high = 1.44269502162933349609375;   // binary32 nearest to log2(e)
constexpr double log2e_low = 1.925963033500011079013e-08;  // binary32 nearest to the rest
constexpr double round_magic = 12582912.0;                 // 1.5 * 2^23
constexpr std::array<double, 7> exp2_coefficients{1.0,
                                                  0.693147182464599609375,
                                                  0.240226462483406066894531,
                                                  0.05550328642129898071289,
                                                  0.009618489071726799011230,
                                                  0.00133999309036880731582,
                                                  0.000153458124259486794471};

struct ExponentParts {
  std::string shifted;  // round_magic + n: n in the low bits
  std::string power;    // 2^f
};

// `clamped` decides n and must be a number of moderate size; `x` gives the fraction, so that its NaN reaches the
// result.
ExponentParts split_exponent(IrWriter& ir, const std::string& clamped, const std::string& x) {
  const std::string shifted = ir.fused(clamped, float_splat(log2e_high), float_splat(round_magic));
  const std::string n = ir.binary("fsub", ir_floats, shifted, float_splat(round_magic));
  const std::string minus_n = ir.define(concat("fneg ", ir_floats, " ", n));
  const std::string f_high = ir.fused(x, float_splat(log2e_high), minus_n);
  const std::string f = ir.fused(x, float_splat(log2e_low), f_high);
  std::string power = float_splat(exp2_coefficients.back());
  for (std::size_t i = exp2_coefficients.size() - 1; i-- > 0;) {
    power = ir.fused(power, f, float_splat(exp2_coefficients[i]));
  }
  return {shifted, power};
}

// 2^n from an integer vector n in [-126, 127].
std::string power_of_two(IrWriter& ir, const std::string& n) {
  const std::string exponent = ir.binary("add", ir_ints, n, int_splat(127));
  const std::string bits = ir.binary("shl", ir_ints, exponent, int_splat(23));
  return ir.define(concat("bitcast ", ir_ints, " ", bits, " to ", ir_floats));
}

std::string select_floats(IrWriter& ir, const std::string& condition, const std::string& if_true,
                          const std::string& if_false) {
  return ir.define(
      concat("select ", ir_bools, " ", condition, ", ", ir_floats, " ", if_true, ", ", ir_floats, " ", if_false));
}

std::string compare(IrWriter& ir, const char* predicate, const std::string& left, const std::string& right) {
  return ir.define(concat("fcmp ", predicate, " ", ir_floats, " ", left, ", ", right));
}

// exp of a shifted score: 0 below -87, +inf above 88, NaN for NaN.
std::string emit_exp_probability() {
  IrWriter ir("define internal <16 x float> @exp_probability(<16 x float> %x) alwaysinline #0");
  const std::string above = compare(ir, "ogt", "%x", float_splat(-87.0));
  const std::string raised = select_floats(ir, above, "%x", float_splat(-87.0));
  const std::string below = compare(ir, "olt", raised, float_splat(88.0));
  const std::string clamped = select_floats(ir, below, raised, float_splat(88.0));
  const ExponentParts parts = split_exponent(ir, clamped, "%x");
  const std::string bits = ir.define(concat("bitcast ", ir_floats, " ", parts.shifted, " to ", ir_ints));
  // The bits of round_magic vanish in the shift by 23; 127 << 23 is the exponent of 1.
  const std::string exponent = ir.binary("shl", ir_ints, bits, int_splat(23));
  const std::string scale_bits = ir.binary("add", ir_ints, exponent, int_splat(127LL << 23));
  const std::string scale = ir.define(concat("bitcast ", ir_ints, " ", scale_bits, " to ", ir_floats));
  const std::string product = ir.binary("fmul", ir_floats, parts.power, scale);
  const std::string tiny = compare(ir, "olt", "%x", float_splat(-87.0));
  const std::string flushed = select_floats(ir, tiny, "zeroinitializer", product);
  const std::string huge = compare(ir, "ogt", "%x", float_splat(88.0));
  return ir.finish(
      concat(ir_floats, " ", select_floats(ir, huge, concat("splat (float 0x7FF0000000000000)"), flushed)));
}

// exp over the whole range of binary32, subnormal results included.
std::string emit_exp_real() {
  IrWriter ir("define internal <16 x float> @exp_real(<16 x float> %x) alwaysinline #0");
  const std::string above = compare(ir, "ogt", "%x", float_splat(-105.0));
  const std::string raised = select_floats(ir, above, "%x", float_splat(-105.0));
  const std::string below = compare(ir, "olt", raised, float_splat(90.0));
  const std::string clamped = select_floats(ir, below, raised, float_splat(90.0));
  const ExponentParts parts = split_exponent(ir, clamped, clamped);
  const std::string bits = ir.define(concat("bitcast ", ir_floats, " ", parts.shifted, " to ", ir_ints));
  const std::string n = ir.binary("sub", ir_ints, bits, int_splat(0x4B400000));
  const std::string half = ir.binary("ashr", ir_ints, n, int_splat(1));
  const std::string rest = ir.binary("sub", ir_ints, n, half);
  const std::string once = ir.binary("fmul", ir_floats, parts.power, power_of_two(ir, half));
  const std::string twice = ir.binary("fmul", ir_floats, once, power_of_two(ir, rest));
  const std::string unordered = compare(ir, "uno", "%x", "%x");
  return ir.finish(concat(ir_floats, " ", select_floats(ir, unordered, "%x", twice)));
}

// tanh(x): an odd polynomial below 0.625 (S. Moshier, Cephes, tanhf), else 1 - 2 / (exp(2 |x|) + 1) with x's sign.
std::string emit_tanh_real() {
  IrWriter ir("define internal <16 x float> @tanh_real(<16 x float> %x) alwaysinline #0");
  constexpr std::array<double, 5> coefficients{-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1,
                                               -3.33332819422e-1};
  const std::string square = ir.binary("fmul", ir_floats, "%x", "%x");
  std::string sum = float_splat(static_cast<float>(coefficients[0]));
  for (std::size_t i = 1; i < coefficients.size(); ++i) {
    sum = ir.fused(sum, square, float_splat(static_cast<float>(coefficients[i])));
  }
  const std::string cubic = ir.binary("fmul", ir_floats, sum, square);
  const std::string near = ir.fused(cubic, "%x", "%x");
  const std::string size = ir.define("call <16 x float> @llvm.fabs.v16f32(<16 x float> %x)");
  const std::string doubled = ir.binary("fadd", ir_floats, size, size);
  const std::string power = ir.define(concat("call <16 x float> @exp_real(<16 x float> ", doubled, ")"));
  const std::string denominator = ir.binary("fadd", ir_floats, power, float_splat(1.0));
  const std::string quotient = ir.binary("fdiv", ir_floats, float_splat(2.0), denominator);
  const std::string far_size = ir.binary("fsub", ir_floats, float_splat(1.0), quotient);
  const std::string far =
      ir.define(concat("call <16 x float> @llvm.copysign.v16f32(<16 x float> ", far_size, ", <16 x float> %x)"));
  const std::string is_near = compare(ir, "olt", size, float_splat(0.625));
  return ir.finish(concat(ir_floats, " ", select_floats(ir, is_near, near, far)));
}

}  // namespace

std::string emit_llvm_elementary_functions() { return emit_exp_probability() + emit_exp_real() + emit_tanh_real(); }

}  // namespace flashspan::kernel
