// emit_warpgroup_products.cpp -- one block of inline assembly per product: its k-steps share the predicates that say
// whether the accumulators start at zero, and descriptors advance by constants.
#include "codegen/kernel/emit_warpgroup_products.hpp"

#include <vector>

#include "codegen/kernel/tile_config.hpp"

namespace flashspan::kernel {
namespace {

constexpr int k_step = 16;         // inner dimension of one wgmma on 16-bit operands
constexpr int panel_columns = 64;  // templates/ptx/warpgroup.cuh
constexpr int panel_row_bytes = 128;
constexpr int descriptor_unit = 16;  // bytes

std::string quoted(const std::string& line) { return "      \"" + line + "\\n\"\n"; }

/// "%first, %first+1, ..." in braces.
std::string registers(int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "%" : ", %") + std::to_string(first + i);
  return text + "}";
}

std::string operand(const std::string& constraint, const std::string& value) {
  return "\"" + constraint + "\"(" + value + ")";
}

/// All elements of an array as operands.
std::vector<std::string> operands(const std::string& constraint, const std::string& array, int count) {
  std::vector<std::string> list;
  list.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) list.push_back(operand(constraint, array + "[" + std::to_string(i) + "]"));
  return list;
}

/// One of the colon-separated lists of an asm statement, in lines of the house's width.
std::string operand_list(const std::vector<std::string>& list) {
  constexpr std::size_t width = 120;
  const std::string begin = "      :";
  std::string text = begin;
  std::size_t column = begin.size();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string item = " " + list[i] + (i + 1 < list.size() ? "," : "");
    if (column + item.size() > width) {
      text += "\n" + std::string(begin.size(), ' ');
      column = begin.size();
    }
    text += item;
    column += item.size();
  }
  return text + "\n";
}

std::string instruction(const KernelSpec& spec, int columns) {
  const std::string type = spec.dtype == DType::bf16 ? "bf16" : "f16";
  return "wgmma.mma_async.sync.aligned.m64n" + std::to_string(columns) + "k16.f32." + type + "." + type + " ";
}

/// `to` = `descriptor` advanced by `offset` descriptor units.
std::string advanced(const char* to, const std::string& descriptor, int offset) {
  return quoted(std::string("add.s64 ") + to + ", " + descriptor + ", " + std::to_string(offset) + ";");
}

/// Descriptor units from the first column to column 16 * step of a tile of `rows` rows.
int column_offset(int step, int rows) {
  constexpr int steps_per_panel = panel_columns / k_step;
  const int bytes = step / steps_per_panel * rows * panel_row_bytes + step % steps_per_panel * k_step * 2;
  return bytes / descriptor_unit;
}

std::string score_product(const KernelSpec& spec) {
  const int count = spec.tile.block_n / 2;
  const int steps = padded_head_dim(spec.head_dim_qk) / k_step;
  const std::string query = "%" + std::to_string(count);
  const std::string key = "%" + std::to_string(count + 1);
  std::string text =
      "/// scores = Q K^T; 64 rows of a warpgroup.\n"
      "__device__ __forceinline__ void multiply_scores(float (&scores)[" +
      std::to_string(count) + "], u64 query, u64 key) {\n  asm volatile(\n";
  text += quoted("{") + quoted(".reg .pred add;") + quoted(".reg .pred start;") + quoted(".reg .b64 a, b;");
  text += quoted("setp.ne.b32 start, 0, 0;") + quoted("setp.eq.b32 add, 0, 0;");
  for (int step = 0; step < steps; ++step) {
    std::string a = query;
    std::string b = key;
    if (step != 0) {
      text += advanced("a", query, column_offset(step, spec.tile.block_m));
      text += advanced("b", key, column_offset(step, spec.tile.block_n));
      a = "a";
      b = "b";
    }
    text += quoted(instruction(spec, spec.tile.block_n) + registers(0, count) + ", " + a + ", " + b + ", " +
                   (step == 0 ? "start" : "add") + ", 1, 1, 0, 0;");
  }
  text += quoted("}");
  text += operand_list(operands("+f", "scores", count)) + operand_list({operand("l", "query"), operand("l", "key")}) +
          "      : \"memory\");\n}\n";
  return text;
}

std::string value_product(const KernelSpec& spec) {
  const int columns = padded_head_dim(spec.head_dim_v);
  const int count = columns / 2;
  const int steps = spec.tile.block_n / k_step;
  const int weights = spec.tile.block_n / 4;
  const std::string value = "%" + std::to_string(count + weights);
  std::string text =
      "/// out += P V; 64 rows of a warpgroup, P as operand fragments.\n"
      "__device__ __forceinline__ void accumulate_values(float (&out)[" +
      std::to_string(count) + "], const u32 (&weights)[" + std::to_string(weights) +
      "], u64 value) {\n  asm volatile(\n";
  text += quoted("{") + quoted(".reg .pred add;") + quoted(".reg .b64 b;") + quoted("setp.eq.b32 add, 0, 0;");
  for (int step = 0; step < steps; ++step) {
    std::string b = value;
    if (step != 0) {
      text += advanced("b", value, step * k_step * panel_row_bytes / descriptor_unit);
      b = "b";
    }
    text += quoted(instruction(spec, columns) + registers(0, count) + ", " + registers(count + 4 * step, 4) + ", " + b +
                   ", add, 1, 1, 1;");
  }
  text += quoted("}");
  std::vector<std::string> inputs = operands("r", "weights", weights);
  inputs.push_back(operand("l", "value"));
  text += operand_list(operands("+f", "out", count)) + operand_list(inputs) + "      : \"memory\");\n}\n";
  return text;
}

}  // namespace

std::string emit_warpgroup_products(const KernelSpec& spec) {
  return "// warpgroup_products.cuh -- generated: the matrix products of one kernel's shape.\n#pragma once\n\n"
         "#include \"ptx/matrix.cuh\"\n#include \"ptx/warpgroup.cuh\"\n\nnamespace flashspan_device {\n\n" +
         score_product(spec) + "\n" + value_product(spec) + "\n}  // namespace flashspan_device\n";
}

}  // namespace flashspan::kernel
