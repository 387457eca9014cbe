// emit_llvm_pack.cpp -- between the caller's tensors and fp32 tiles: conversion (round to nearest even), zero padding
// to whole vectors, transposition, and which rows hold a NaN or an infinity.
#include <array>

#include "codegen/kernel/emit_llvm_parts.hpp"
#include "codegen/kernel/emit_llvm_writer.hpp"

namespace flashspan::kernel {
namespace {

const char* storage_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float";
    case DType::f16:
      return "i16";
    case DType::bf16:
      return "i16";
    case DType::i32:
      return "i32";
  }
  return "";
}

std::string storage_vector(DType dtype) { return concat("<16 x ", storage_type(dtype), ">"); }
std::string storage_suffix(DType dtype) { return dtype == DType::f32 ? "v16f32.p0" : "v16i16.p0"; }

std::string to_floats(IrWriter& ir, DType dtype, const std::string& raw) {
  if (dtype == DType::f32) return raw;
  if (dtype == DType::f16) {
    const std::string halves = ir.define(concat("bitcast <16 x i16> ", raw, " to <16 x half>"));
    return ir.define(concat("fpext <16 x half> ", halves, " to <16 x float>"));
  }
  const std::string wide = ir.define(concat("zext <16 x i16> ", raw, " to ", ir_ints));
  const std::string bits = ir.binary("shl", ir_ints, wide, int_splat(16));
  return ir.define(concat("bitcast ", ir_ints, " ", bits, " to ", ir_floats));
}

std::string from_floats(IrWriter& ir, DType dtype, const std::string& value) {
  if (dtype == DType::f32) return value;
  if (dtype == DType::f16) {
    const std::string halves = ir.define(concat("fptrunc <16 x float> ", value, " to <16 x half>"));
    return ir.define(concat("bitcast <16 x half> ", halves, " to <16 x i16>"));
  }
  const std::string bits = ir.define(concat("bitcast ", ir_floats, " ", value, " to ", ir_ints));
  const std::string high = ir.binary("lshr", ir_ints, bits, int_splat(16));
  const std::string odd = ir.binary("and", ir_ints, high, int_splat(1));
  const std::string half_up = ir.binary("add", ir_ints, odd, int_splat(0x7fff));
  const std::string rounded = ir.binary("lshr", ir_ints, ir.binary("add", ir_ints, bits, half_up), int_splat(16));
  // Rounding could carry a NaN into infinity; a NaN keeps its high bits and becomes quiet.
  const std::string quiet = ir.binary("or", ir_ints, high, int_splat(0x40));
  const std::string is_nan = ir.define(concat("fcmp uno ", ir_floats, " ", value, ", ", value));
  const std::string chosen =
      ir.define(concat("select ", ir_bools, " ", is_nan, ", ", ir_ints, " ", quiet, ", ", ir_ints, " ", rounded));
  return ir.define(concat("trunc ", ir_ints, " ", chosen, " to <16 x i16>"));
}

// Lanes below `count`.
std::string first_lanes(IrWriter& ir, const std::string& count) {
  const std::string narrow = ir.define(concat("trunc i64 ", count, " to i32"));
  const std::string counts = ir.splat("i32", narrow);
  return ir.define(concat("icmp slt ", ir_ints, " ", lane_numbers(), ", ", counts));
}

// Calls `whole` for every full vector of columns of every row and `tail` for what is left of the row.
template <typename Whole, typename Tail>
void for_each_vector(IrWriter& ir, const Whole& whole, const Tail& tail) {
  const std::string left = ir.define(concat("and i64 %cols, ", ir_lanes - 1));
  const std::string even = ir.binary("sub", "i64", "%cols", left);
  const std::string has_tail = ir.define(concat("icmp ne i64 ", left, ", 0"));
  const std::string tail_lanes = first_lanes(ir, left);
  ir.loop("0", "%rows", 1, {}, [&](const std::string& row, const IrWriter::Values&) {
    ir.loop("0", even, ir_lanes, {}, [&](const std::string& col, const IrWriter::Values&) {
      whole(row, col);
      return IrWriter::Values{};
    });
    ir.branch(
        has_tail, {}, [&] { return tail(row, even, tail_lanes), IrWriter::Values{}; },
        [] { return IrWriter::Values{}; });
    return IrWriter::Values{};
  });
}

std::string row_element(IrWriter& ir, const char* type, const std::string& base, const std::string& row,
                        const std::string& stride, const std::string& col) {
  return ir.element_pointer(type, base, ir.binary("add", "i64", ir.binary("mul", "i64", row, stride), col));
}

std::string emit_load_rows(DType dtype) {
  IrWriter ir(
      "define void @load_rows(ptr noalias %source, i64 %source_row, i64 %rows, i64 %cols, float %factor, "
      "ptr noalias %target, i64 %target_row) #0");
  const std::string factors = ir.splat("float", "%factor");
  const int align = size_in_bytes(dtype);
  const std::string vector = storage_vector(dtype);
  const auto put = [&](const std::string& row, const std::string& col, const std::string& raw) {
    const std::string scaled = ir.binary("fmul", ir_floats, to_floats(ir, dtype, raw), factors);
    ir.store(ir_floats, scaled, row_element(ir, "float", "%target", row, "%target_row", col), 4);
  };
  for_each_vector(
      ir,
      [&](const std::string& row, const std::string& col) {
        const std::string from = row_element(ir, storage_type(dtype), "%source", row, "%source_row", col);
        put(row, col, ir.load(vector.c_str(), from, align));
      },
      [&](const std::string& row, const std::string& col, const std::string& lanes) {
        const std::string from = row_element(ir, storage_type(dtype), "%source", row, "%source_row", col);
        // Padding lanes are multiplied too, so that they stay zero only for a finite factor; factors are finite.
        put(row, col,
            ir.define(concat("call ", vector, " @llvm.masked.load.", storage_suffix(dtype), "(ptr ", from, ", i32 ",
                             align, ", ", ir_bools, " ", lanes, ", ", vector, " zeroinitializer)")));
      });
  return ir.finish();
}

std::string emit_store_rows(DType dtype) {
  IrWriter ir(
      "define void @store_rows(ptr noalias %source, i64 %source_row, i64 %rows, i64 %cols, ptr noalias %factors, "
      "ptr noalias %target, i64 %target_row) #0");
  const int align = size_in_bytes(dtype);
  const std::string vector = storage_vector(dtype);
  const auto take = [&](const std::string& row, const std::string& col) {
    const std::string factor = ir.load("float", ir.element_pointer("float", "%factors", row), 4);
    const std::string value = ir.load(ir_floats, row_element(ir, "float", "%source", row, "%source_row", col), 4);
    return from_floats(ir, dtype, ir.binary("fmul", ir_floats, value, ir.splat("float", factor)));
  };
  for_each_vector(
      ir,
      [&](const std::string& row, const std::string& col) {
        const std::string value = take(row, col);
        ir.store(vector.c_str(), value, row_element(ir, storage_type(dtype), "%target", row, "%target_row", col),
                 align);
      },
      [&](const std::string& row, const std::string& col, const std::string& lanes) {
        const std::string value = take(row, col);
        const std::string to = row_element(ir, storage_type(dtype), "%target", row, "%target_row", col);
        ir.line(concat("call void @llvm.masked.store.", storage_suffix(dtype), "(", vector, " ", value, ", ptr ", to,
                       ", i32 ", align, ", ", ir_bools, " ", lanes, ")"));
      });
  return ir.finish();
}

std::string emit_transpose_rows() {
  IrWriter ir(
      "define void @transpose_rows(ptr noalias %source, i64 %source_row, i64 %rows, i64 %cols, ptr noalias %target, "
      "i64 %target_row) #0");
  ir.loop("0", "%rows", ir_lanes, {}, [&](const std::string& row, const IrWriter::Values&) {
    ir.loop("0", "%cols", ir_lanes, {}, [&](const std::string& col, const IrWriter::Values&) {
      std::array<std::string, ir_lanes> block;
      for (int i = 0; i < ir_lanes; ++i) {
        const std::string index = ir.define(concat("add i64 ", row, ", ", i));
        block[static_cast<std::size_t>(i)] =
            ir.load(ir_floats, row_element(ir, "float", "%source", index, "%source_row", col), 4);
      }
      transpose_block(ir, block);
      for (int i = 0; i < ir_lanes; ++i) {
        const std::string index = ir.define(concat("add i64 ", col, ", ", i));
        ir.store(ir_floats, block[static_cast<std::size_t>(i)],
                 row_element(ir, "float", "%target", index, "%target_row", row), 4);
      }
      return IrWriter::Values{};
    });
    return IrWriter::Values{};
  });
  return ir.finish();
}

std::string emit_nonfinite_rows() {
  IrWriter ir(
      "define void @nonfinite_rows(ptr noalias %source, i64 %source_row, i64 %rows, i64 %cols, ptr noalias %flags) #0");
  ir.loop("0", "%rows", 1, {}, [&](const std::string& row, const IrWriter::Values&) {
    const std::string lanes = ir.loop(
        "0", "%cols", ir_lanes, {{ir_bools, "zeroinitializer"}},
        [&](const std::string& col, const IrWriter::Values& now) {
          const std::string value = ir.load(ir_floats, row_element(ir, "float", "%source", row, "%source_row", col), 4);
          // x - x is 0 for a number and NaN for a NaN or an infinity.
          const std::string difference = ir.binary("fsub", ir_floats, value, value);
          const std::string is_nan = ir.define(concat("fcmp uno ", ir_floats, " ", difference, ", ", difference));
          return IrWriter::Values{ir.binary("or", ir_bools, now[0], is_nan)};
        })[0];
    const std::string any = ir.define(concat("call i1 @llvm.vector.reduce.or.v16i1(", ir_bools, " ", lanes, ")"));
    ir.store("i8", ir.define(concat("zext i1 ", any, " to i8")), ir.element_pointer("i8", "%flags", row), 1);
    return IrWriter::Values{};
  });
  return ir.finish();
}

}  // namespace

// A 16 x 16 block is transposed in four rounds; each exchanges, between rows i and i + d, the blocks of d columns that
// stand off the diagonal, d = 8, 4, 2, 1.
void transpose_block(IrWriter& ir, std::array<std::string, ir_lanes>& rows) {
  for (int distance = ir_lanes / 2; distance > 0; distance /= 2) {
    std::string upper = "<";
    std::string lower = "<";
    for (int lane = 0; lane < ir_lanes; ++lane) {
      const bool high = (lane & distance) != 0;
      const char* separator = lane == 0 ? "" : ", ";
      upper += concat(separator, "i32 ", high ? ir_lanes + lane - distance : lane);
      lower += concat(separator, "i32 ", high ? ir_lanes + lane : lane + distance);
    }
    for (int i = 0; i < ir_lanes; ++i) {
      if ((i & distance) != 0) continue;
      std::string& first = rows[static_cast<std::size_t>(i)];
      std::string& second = rows[static_cast<std::size_t>(i + distance)];
      const std::string operands =
          concat("shufflevector ", ir_floats, " ", first, ", ", ir_floats, " ", second, ", ", ir_ints, " ");
      first = ir.define(concat(operands, upper, ">"));
      second = ir.define(concat(operands, lower, ">"));
    }
  }
}

std::string emit_llvm_pack(const KernelSpec& spec) {
  return emit_load_rows(spec.dtype) + emit_store_rows(spec.dtype) + emit_transpose_rows() + emit_nonfinite_rows();
}

}  // namespace flashspan::kernel
