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
constexpr std::size_t line_width = 120;

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
  const std::string begin = "      :";
  std::string text = begin;
  std::size_t column = begin.size();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string item = " " + list[i] + (i + 1 < list.size() ? "," : "");
    if (column + item.size() > line_width) {
      text += "\n" + std::string(begin.size(), ' ');
      column = begin.size();
    }
    text += item;
    column += item.size();
  }
  return text + "\n";
}

/// Head of a device function, in lines of the house's width.
std::string signature(const std::string& name, const std::vector<std::string>& parameters) {
  const std::string begin = "__device__ __forceinline__ void " + name + "(";
  constexpr std::size_t room_for_brace = 2;
  std::string text = begin;
  std::size_t column = begin.size();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool last = i + 1 == parameters.size();
    const std::string item = parameters[i] + (last ? ")" : ",");
    const std::size_t space = i == 0 ? 0 : 1;
    if (column + space + item.size() + (last ? room_for_brace : 0) > line_width) {
      text += "\n" + std::string(begin.size(), ' ') + item;
      column = begin.size() + item.size();
    } else {
      text += (i == 0 ? "" : " ") + item;
      column += space + item.size();
    }
  }
  return text;
}

std::string instruction(const KernelSpec& spec, int columns) {
  const std::string type = spec.dtype == DType::bf16 ? "bf16" : "f16";
  return "wgmma.mma_async.sync.aligned.m64n" + std::to_string(columns) + "k16.f32." + type + "." + type + " ";
}

/// `to` = `descriptor` advanced by `offset` descriptor units.
std::string advanced(const char* to, const std::string& descriptor, int offset) {
  return quoted(std::string("add.s64 ") + to + ", " + descriptor + ", " + std::to_string(offset) + ";");
}

/// How one operand of a product stands.
enum class Layout {
  inner_along_columns,  ///< in shared memory, a row for each index of the result
  inner_along_rows,     ///< in shared memory, a row for each index of the inner dimension
  fragments,            ///< in registers
};
struct Operand {
  const char* name;
  Layout layout;
  int rows;  ///< of the tile in shared memory
};

/// What a result starts from.
enum class Start {
  zero,
  itself,
  either,  ///< as a further argument of the function says: accumulate
};

/// result[64 x columns] (+)= a b, by one warpgroup, over `inner`.
struct Product {
  const char* comment;
  const char* function;
  const char* result;
  Operand a, b;
  int columns;
  int inner;
  Start start;
};

/// Descriptor units from an operand's first step to another.
int step_offset(const Operand& operand, int step) {
  int bytes = 0;
  switch (operand.layout) {
    case Layout::inner_along_columns: {
      constexpr int steps_per_panel = panel_columns / k_step;
      bytes = step / steps_per_panel * operand.rows * panel_row_bytes + step % steps_per_panel * k_step * 2;
      break;
    }
    case Layout::inner_along_rows:
      bytes = step * k_step * panel_row_bytes;
      break;
    case Layout::fragments:
      break;
  }
  return bytes / descriptor_unit;
}

const char* transposed(const Operand& operand) { return operand.layout == Layout::inner_along_rows ? "1" : "0"; }

std::string emit_product(const KernelSpec& spec, const Product& product) {
  const int count = product.columns / 2;
  const int steps = product.inner / k_step;
  const bool fragments = product.a.layout == Layout::fragments;
  const int a_registers = fragments ? product.inner / 4 : 1;
  const std::string first_a = "%" + std::to_string(count);
  const std::string first_b = "%" + std::to_string(count + a_registers);
  std::vector<std::string> parameters{
      "float (&" + std::string(product.result) + ")[" + std::to_string(count) + "]",
      fragments ? "const u32 (&" + std::string(product.a.name) + ")[" + std::to_string(a_registers) + "]"
                : "u64 " + std::string(product.a.name),
      "u64 " + std::string(product.b.name)};
  if (product.start == Start::either) parameters.emplace_back("bool accumulate");
  std::string text =
      "/// " + std::string(product.comment) + "\n" + signature(product.function, parameters) + " {\n  asm volatile(\n";
  text += quoted("{") + quoted(".reg .pred add;");
  if (product.start != Start::itself) text += quoted(".reg .pred start;");
  text += quoted(fragments ? ".reg .b64 b;" : ".reg .b64 a, b;");
  if (product.start == Start::zero) text += quoted("setp.ne.b32 start, 0, 0;");
  if (product.start == Start::either) {
    text += quoted("setp.ne.b32 start, %" + std::to_string(count + a_registers + 1) + ", 0;");
  }
  text += quoted("setp.eq.b32 add, 0, 0;");
  for (int step = 0; step < steps; ++step) {
    std::string a = fragments ? registers(count + 4 * step, 4) : first_a;
    std::string b = first_b;
    if (step != 0) {
      if (!fragments) {
        text += advanced("a", first_a, step_offset(product.a, step));
        a = "a";
      }
      text += advanced("b", first_b, step_offset(product.b, step));
      b = "b";
    }
    text += quoted(instruction(spec, product.columns) + registers(0, count) + ", " + a + ", " + b + ", " +
                   (step == 0 && product.start != Start::itself ? "start" : "add") + ", 1, 1, " +
                   (fragments ? "" : std::string(transposed(product.a)) + ", ") + transposed(product.b) + ";");
  }
  text += quoted("}");
  std::vector<std::string> inputs =
      fragments ? operands("r", product.a.name, a_registers) : std::vector{operand("l", product.a.name)};
  inputs.push_back(operand("l", product.b.name));
  if (product.start == Start::either) inputs.push_back(operand("r", "static_cast<u32>(accumulate)"));
  text += operand_list(operands("+f", product.result, count)) + operand_list(inputs) + "      : \"memory\");\n}\n";
  return text;
}

std::vector<Product> forward_products(const KernelSpec& spec) {
  const TileConfig& tile = spec.tile;
  return {{.comment = "scores = Q K^T; 64 rows of a warpgroup.",
           .function = "multiply_scores",
           .result = "scores",
           .a = {"query", Layout::inner_along_columns, tile.block_m},
           .b = {"key", Layout::inner_along_columns, tile.block_n},
           .columns = tile.block_n,
           .inner = padded_head_dim(spec.head_dim_qk),
           .start = Start::zero},
          {.comment = "out += P V; 64 rows of a warpgroup, P as operand fragments.",
           .function = "accumulate_values",
           .result = "out",
           .a = {"weights", Layout::fragments, 0},
           .b = {"value", Layout::inner_along_rows, tile.block_n},
           .columns = padded_head_dim(spec.head_dim_v),
           .inner = tile.block_n,
           .start = Start::itself}};
}

/// Of the pass that is stationary over queries: rows are 64 queries of a warpgroup, all of a step's keys at a time.
std::vector<Product> query_pass_products(const KernelSpec& spec) {
  const TileConfig& tile = spec.tile;
  const int keys = step_sizes(spec).keys;
  return {{.comment = "scores = Q K^T; 64 queries of a warpgroup.",
           .function = "multiply_row_scores",
           .result = "scores",
           .a = {"query", Layout::inner_along_columns, tile.block_m},
           .b = {"key", Layout::inner_along_columns, keys},
           .columns = keys,
           .inner = padded_head_dim(spec.head_dim_qk),
           .start = Start::zero},
          {.comment = "weight_gradients = dO V^T; 64 queries of a warpgroup.",
           .function = "multiply_row_gradients",
           .result = "weight_gradients",
           .a = {"out_gradient", Layout::inner_along_columns, tile.block_m},
           .b = {"value", Layout::inner_along_columns, keys},
           .columns = keys,
           .inner = padded_head_dim(spec.head_dim_v),
           .start = Start::zero},
          {.comment = "query_gradient += dS K; 64 queries of a warpgroup, dS as operand fragments.",
           .function = "accumulate_query_gradient",
           .result = "query_gradient",
           .a = {"score_gradients", Layout::fragments, 0},
           .b = {"key", Layout::inner_along_rows, keys},
           .columns = padded_head_dim(spec.head_dim_qk),
           .inner = keys,
           .start = Start::either}};
}

/// Rows of the first two and of the gradients of key and value are 64 keys of a warpgroup; those of the last, 64
/// queries. The gradient of the key stands twice, as the template names both forms and a constant takes one out.
std::vector<Product> backward_products(const KernelSpec& spec) {
  const TileConfig& tile = spec.tile;
  const int head_dim_qk = padded_head_dim(spec.head_dim_qk);
  const int head_dim_v = padded_head_dim(spec.head_dim_v);
  const QueryGradientShare share = query_gradient_share(spec);
  const StepSizes step = step_sizes(spec);
  std::vector<Product> products{
      {.comment = "scores = K Q^T; 64 keys of a warpgroup.",
       .function = "multiply_scores",
       .result = "scores",
       .a = {"key", Layout::inner_along_columns, tile.block_n},
       .b = {"query", Layout::inner_along_columns, step.queries},
       .columns = step.queries,
       .inner = head_dim_qk,
       .start = Start::zero},
      {.comment = "weight_gradients = V dO^T; 64 keys of a warpgroup.",
       .function = "multiply_weight_gradients",
       .result = "weight_gradients",
       .a = {"value", Layout::inner_along_columns, tile.block_n},
       .b = {"out_gradient", Layout::inner_along_columns, step.queries},
       .columns = step.queries,
       .inner = head_dim_v,
       .start = Start::zero},
      {.comment = "value_gradient += P^T dO; 64 keys of a warpgroup, P^T as operand fragments.",
       .function = "accumulate_value_gradient",
       .result = "value_gradient",
       .a = {"weights", Layout::fragments, 0},
       .b = {"out_gradient", Layout::inner_along_rows, step.queries},
       .columns = head_dim_v,
       .inner = step.queries,
       .start = Start::either},
      {.comment = "key_gradient += dS^T Q; 64 keys of a warpgroup.",
       .function = "accumulate_key_gradient",
       .result = "key_gradient",
       .a = {"score_gradients", Layout::inner_along_columns, tile.block_n},
       .b = {"query", Layout::inner_along_rows, step.queries},
       .columns = head_dim_qk,
       .inner = step.queries,
       .start = Start::either},
      {.comment = "key_gradient += dS^T Q; 64 keys of a warpgroup, dS^T as operand fragments.",
       .function = "accumulate_key_gradient",
       .result = "key_gradient",
       .a = {"score_gradients", Layout::fragments, 0},
       .b = {"query", Layout::inner_along_rows, step.queries},
       .columns = head_dim_qk,
       .inner = step.queries,
       .start = Start::either},
      {.comment = "query_gradient = dS K; a warpgroup's share.",
       .function = "multiply_query_gradient",
       .result = "query_gradient",
       .a = {"score_gradients", Layout::inner_along_rows, tile.block_n},
       .b = {"key", Layout::inner_along_rows, tile.block_n},
       .columns = share.columns,
       .inner = share.keys,
       .start = Start::zero}};
  if (spec.two_passes) {
    const auto of_queries = query_pass_products(spec);
    products.insert(products.end(), of_queries.begin(), of_queries.end());
  }
  return products;
}

}  // namespace

std::string emit_warpgroup_products(const KernelSpec& spec) {
  const bool forward = spec.direction == Direction::forward;
  std::string text = std::string("// ") + (forward ? "warpgroup_products" : "backward_products") +
                     ".cuh -- generated: the matrix products of one kernel's shape.\n#pragma once\n\n"
                     "#include \"ptx/matrix.cuh\"\n#include \"ptx/warpgroup.cuh\"\n\nnamespace flashspan_device {\n\n";
  for (const Product& product : forward ? forward_products(spec) : backward_products(spec)) {
    text += emit_product(spec, product) + "\n";
  }
  return text + "}  // namespace flashspan_device\n";
}

}  // namespace flashspan::kernel
