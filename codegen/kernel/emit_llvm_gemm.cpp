// emit_llvm_gemm.cpp -- C[rows x cols] (+)= A[rows x inner] * B[inner x cols] with C in registers: every element of C
// is one chain of fused multiply-adds over ascending `inner`, so the blocking never changes a result.
#include <array>

#include "codegen/kernel/emit_llvm_parts.hpp"
#include "codegen/kernel/emit_llvm_writer.hpp"

namespace flashspan::kernel {
namespace {

// Row blocks by 16-lane column vectors that one micro-kernel keeps in registers, largest first; both end at 1, so that
// every size is covered. 32 registers of 16 lanes hold 6 x 4 accumulators; 16 registers of 8 lanes (two a vector) hold
// 6 x 1; of 4 lanes (four a vector), 2 x 1.
constexpr std::array<int, 4> row_blocks{6, 4, 2, 1};
constexpr std::array<int, 3> vector_blocks{4, 2, 1};
constexpr int lanes_for_rows(int rows) { return rows > 2 ? 8 : 4; }
constexpr int lanes_for_vectors(int vectors) { return vectors > 1 ? 16 : 4; }

std::string micro_kernel_name(int rows, int vectors) { return concat("gemm_", rows, "x", vectors); }

constexpr const char* micro_kernel_parameters =
    "(ptr noalias %a, i64 %a_row, i64 %a_col, ptr noalias %b, i64 %b_row, ptr noalias %c, i64 %c_row, i64 %inner, "
    "i1 %accumulate)";

std::string emit_micro_kernel(int rows, int vectors) {
  IrWriter ir(
      concat("define internal void @", micro_kernel_name(rows, vectors), micro_kernel_parameters, " noinline #0"));
  const int count = rows * vectors;
  IrWriter::Values c_pointers;
  IrWriter::Values a_rows;
  for (int row = 0; row < rows; ++row) {
    const std::string c_offset = ir.define(concat("mul i64 %c_row, ", row));
    for (int vector = 0; vector < vectors; ++vector) {
      const std::string offset = ir.define(concat("add i64 ", c_offset, ", ", vector * ir_lanes));
      c_pointers.push_back(ir.element_pointer("float", "%c", offset));
    }
    a_rows.push_back(ir.define(concat("mul i64 %a_row, ", row)));
  }
  const std::vector<std::string> types(static_cast<std::size_t>(count), ir_floats);
  const IrWriter::Values first = ir.branch(
      "%accumulate", types,
      [&] {
        IrWriter::Values loaded;
        for (const std::string& pointer : c_pointers) loaded.push_back(ir.load(ir_floats, pointer, 4));
        return loaded;
      },
      [&] { return IrWriter::Values(static_cast<std::size_t>(count), "zeroinitializer"); });
  std::vector<TypedValue> carried{{"ptr", "%a"}, {"ptr", "%b"}};
  for (const std::string& value : first) carried.push_back({ir_floats, value});
  const IrWriter::Values last =
      ir.loop("0", "%inner", 1, carried, [&](const std::string&, const IrWriter::Values& now) {
        IrWriter::Values b;
        for (int vector = 0; vector < vectors; ++vector) {
          b.push_back(ir.load(ir_floats, ir.element_pointer("float", now[1], std::to_string(vector * ir_lanes)), 4));
        }
        IrWriter::Values next{ir.element_pointer("float", now[0], "%a_col"),
                              ir.element_pointer("float", now[1], "%b_row")};
        for (int row = 0; row < rows; ++row) {
          const std::string pointer = ir.element_pointer("float", now[0], a_rows[static_cast<std::size_t>(row)]);
          const std::string a = ir.splat("float", ir.load("float", pointer, 4));
          for (int vector = 0; vector < vectors; ++vector) {
            const auto index = static_cast<std::size_t>(2 + row * vectors + vector);
            next.push_back(ir.fused(a, b[static_cast<std::size_t>(vector)], now[index]));
          }
        }
        return next;
      });
  for (int i = 0; i < count; ++i) {
    ir.store(ir_floats, last[static_cast<std::size_t>(2 + i)], c_pointers[static_cast<std::size_t>(i)], 4);
  }
  return ir.finish();
}

// `size` if the host's registers are at least `lanes` wide, else 0, which leaves the loop that it bounds without a
// turn.
std::string if_host_has(IrWriter& ir, int lanes, const std::string& host_lanes, const std::string& size) {
  const std::string wide = ir.define(concat("icmp sge i32 ", host_lanes, ", ", lanes));
  return ir.define(concat("select i1 ", wide, ", i64 ", size, ", i64 0"));
}

}  // namespace

std::string emit_llvm_gemm() {
  std::string text;
  for (int rows : row_blocks) {
    for (int vectors : vector_blocks) text += emit_micro_kernel(rows, vectors);
  }
  IrWriter ir(
      "define void @gemm(ptr noalias %a, i64 %a_row, i64 %a_col, ptr noalias %b, i64 %b_row, ptr noalias %c, "
      "i64 %c_row, i64 %rows, i64 %inner, i64 %cols, i32 %accumulate_flag) #0");
  const std::string accumulate = ir.define("icmp ne i32 %accumulate_flag, 0");
  const std::string host_lanes = ir.load("i32", "@host_vector_lanes", 4);
  std::string col = "0";
  for (int vectors : vector_blocks) {
    const int width = vectors * ir_lanes;
    const std::string col_end =
        if_host_has(ir, lanes_for_vectors(vectors), host_lanes, ir.define(concat("sub i64 %cols, ", width - 1)));
    // Column blocks outside, so that one panel of B stays in the first-level cache while the rows of A pass by.
    col = ir.loop_while(
        {{"i64", col}},
        [&](const IrWriter::Values& now) { return ir.define(concat("icmp slt i64 ", now[0], ", ", col_end)); },
        [&](const IrWriter::Values& now) {
          const std::string b = ir.element_pointer("float", "%b", now[0]);
          const std::string c_column = ir.element_pointer("float", "%c", now[0]);
          std::string row = "0";
          for (int rows : row_blocks) {
            const std::string row_end =
                if_host_has(ir, lanes_for_rows(rows), host_lanes, ir.define(concat("sub i64 %rows, ", rows - 1)));
            row = ir.loop_while(
                {{"i64", row}},
                [&](const IrWriter::Values& at) { return ir.define(concat("icmp slt i64 ", at[0], ", ", row_end)); },
                [&](const IrWriter::Values& at) {
                  const std::string a_offset = ir.binary("mul", "i64", at[0], "%a_row");
                  const std::string c_offset = ir.binary("mul", "i64", at[0], "%c_row");
                  const std::string a = ir.element_pointer("float", "%a", a_offset);
                  const std::string c = ir.element_pointer("float", c_column, c_offset);
                  ir.line(concat("call void @", micro_kernel_name(rows, vectors), "(ptr ", a,
                                 ", i64 %a_row, i64 %a_col, ptr ", b, ", i64 %b_row, ptr ", c,
                                 ", i64 %c_row, i64 %inner, i1 ", accumulate, ")"));
                  return IrWriter::Values{ir.define(concat("add i64 ", at[0], ", ", rows))};
                })[0];
          }
          return IrWriter::Values{ir.define(concat("add i64 ", now[0], ", ", width))};
        })[0];
  }
  return text + ir.finish();
}

}  // namespace flashspan::kernel
