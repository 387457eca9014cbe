// emit_llvm_softmax.cpp -- the row arithmetic of a tile: one step of the online softmax (Milakov and Gimelshein,
// arXiv 1805.02867) forward; probabilities and score gradients backward. Masked pairs are selected away, never added.
#include <array>

#include "codegen/kernel/emit_llvm_parts.hpp"
#include "codegen/kernel/emit_llvm_writer.hpp"

namespace flashspan::kernel {
namespace {

constexpr const char* minus_infinity = "0xFFF0000000000000";

std::string vector_count(IrWriter& ir, const std::string& columns) {
  const std::string rounded = ir.define(concat("add i64 ", columns, ", ", ir_lanes - 1));
  return ir.define(concat("udiv i64 ", rounded, ", ", ir_lanes));
}

// Where the row loops find vector `vector` of row `row` of a tile, and its visibility bits.
struct TileAddress {
  int block_n;
  std::string floats(IrWriter& ir, const std::string& base, const std::string& row, const std::string& vector) const {
    const std::string row_offset = ir.define(concat("mul i64 ", row, ", ", block_n));
    const std::string offset = ir.define(concat("mul i64 ", vector, ", ", ir_lanes));
    return ir.element_pointer("float", base, ir.binary("add", "i64", row_offset, offset));
  }
  std::string visible(IrWriter& ir, const std::string& row, const std::string& vector) const {
    const std::string row_offset = ir.define(concat("mul i64 ", row, ", ", block_n / ir_lanes));
    const std::string index = ir.binary("add", "i64", row_offset, vector);
    const std::string word = ir.load("i16", ir.element_pointer("i16", "%bits", index), 2);
    return ir.define(concat("bitcast i16 ", word, " to ", ir_bools));
  }
};

std::string select_visible(IrWriter& ir, const std::string& visible, const std::string& value,
                           const std::string& otherwise) {
  return ir.define(
      concat("select ", ir_bools, " ", visible, ", ", ir_floats, " ", value, ", ", ir_floats, " ", otherwise));
}

std::string exp_probability(IrWriter& ir, const std::string& x) {
  return ir.define(concat("call <16 x float> @exp_probability(<16 x float> ", x, ")"));
}

std::string larger(IrWriter& ir, const char* type, const std::string& value, const std::string& than) {
  const bool vector = type[0] == '<';
  const std::string greater = ir.define(concat("fcmp ogt ", type, " ", value, ", ", than));
  return ir.define(
      concat("select ", vector ? ir_bools : "i1", " ", greater, ", ", type, " ", value, ", ", type, " ", than));
}

// Raises the running maxima and leaves (old maximum - new base) in %correction. NaN scores do not take part; they
// reach the row through their exponential.
void emit_row_maxima(IrWriter& ir, const TileAddress& tile, const std::string& vectors, bool masked) {
  ir.loop("0", "%rows", 1, {}, [&](const std::string& row, const IrWriter::Values&) {
    const std::string none = concat("splat (float ", minus_infinity, ")");
    const std::string lanes =
        ir.loop("0", vectors, 1, {{ir_floats, none}}, [&](const std::string& vector, const IrWriter::Values& now) {
          std::string score = ir.load(ir_floats, tile.floats(ir, "%scores", row, vector), 4);
          if (masked) score = select_visible(ir, tile.visible(ir, row, vector), score, none);
          return IrWriter::Values{larger(ir, ir_floats, score, now[0])};
        })[0];
    const std::string tile_maximum =
        ir.define(concat("call nnan float @llvm.vector.reduce.fmax.v16f32(<16 x float> ", lanes, ")"));
    const std::string maximum_pointer = ir.element_pointer("float", "%row_max", row);
    const std::string old_maximum = ir.load("float", maximum_pointer, 4);
    const std::string maximum = larger(ir, "float", tile_maximum, old_maximum);
    ir.store("float", maximum, maximum_pointer, 4);
    const std::string nothing_yet = ir.define(concat("fcmp oeq float ", maximum, ", ", minus_infinity));
    const std::string base = ir.define(concat("select i1 ", nothing_yet, ", float 0.0, float ", maximum));
    ir.store("float", base, ir.element_pointer("float", "%base", row), 4);
    ir.store("float", ir.binary("fsub", "float", old_maximum, base), ir.element_pointer("float", "%correction", row),
             4);
    return IrWriter::Values{};
  });
}

// Scales the running sums; returns i32 1 if any row's maximum moved.
std::string emit_corrections(IrWriter& ir) {
  return ir.loop("0", "%rows", ir_lanes, {{"i32", "0"}}, [&](const std::string& row, const IrWriter::Values& now) {
    const std::string pointer = ir.element_pointer("float", "%correction", row);
    const std::string difference = ir.load(ir_floats, pointer, 4);
    const std::string factor = exp_probability(ir, difference);
    ir.store(ir_floats, factor, pointer, 4);
    const std::string sum_pointer = ir.element_pointer("float", "%row_sum", row);
    const std::string sum = ir.load(ir_floats, sum_pointer, 4);
    ir.store(ir_floats, ir.binary("fmul", ir_floats, sum, factor), sum_pointer, 4);
    const std::string moved = ir.define(concat("fcmp une ", ir_floats, " ", factor, ", ", float_splat(1.0)));
    const std::string any = ir.define(concat("call i1 @llvm.vector.reduce.or.v16i1(", ir_bools, " ", moved, ")"));
    return IrWriter::Values{ir.binary("or", "i32", now[0], ir.define(concat("zext i1 ", any, " to i32")))};
  })[0];
}

void emit_exponentials(IrWriter& ir, const TileAddress& tile, const std::string& vectors, bool masked) {
  ir.loop("0", "%rows", 1, {}, [&](const std::string& row, const IrWriter::Values&) {
    const std::string base = ir.splat("float", ir.load("float", ir.element_pointer("float", "%base", row), 4));
    const std::string lanes = ir.loop(
        "0", vectors, 1, {{ir_floats, "zeroinitializer"}}, [&](const std::string& vector, const IrWriter::Values& now) {
          const std::string pointer = tile.floats(ir, "%scores", row, vector);
          const std::string shifted = ir.binary("fsub", ir_floats, ir.load(ir_floats, pointer, 4), base);
          std::string probability = exp_probability(ir, shifted);
          if (masked) probability = select_visible(ir, tile.visible(ir, row, vector), probability, "zeroinitializer");
          ir.store(ir_floats, probability, pointer, 4);
          return IrWriter::Values{ir.binary("fadd", ir_floats, now[0], probability)};
        })[0];
    const std::string tile_sum =
        ir.define(concat("call reassoc float @llvm.vector.reduce.fadd.v16f32(float -0.0, <16 x float> ", lanes, ")"));
    const std::string pointer = ir.element_pointer("float", "%row_sum", row);
    ir.store("float", ir.binary("fadd", "float", ir.load("float", pointer, 4), tile_sum), pointer, 4);
    return IrWriter::Values{};
  });
}

std::string emit_softmax_step(const TileConfig& tile, bool masked) {
  IrWriter ir(concat("define i32 @", masked ? "softmax_masked" : "softmax_full",
                     "(ptr noalias %scores, i64 %rows, i64 %cols, ptr noalias %bits, ptr noalias %row_max, "
                     "ptr noalias %row_sum, ptr noalias %base, ptr noalias %correction) #0"));
  const TileAddress address{tile.block_n};
  const std::string vectors = vector_count(ir, "%cols");
  emit_row_maxima(ir, address, vectors, masked);
  const std::string moved = emit_corrections(ir);
  emit_exponentials(ir, address, vectors, masked);
  return ir.finish(concat("i32 ", moved));
}

std::string emit_rescale_rows() {
  IrWriter ir(
      "define void @rescale_rows(ptr noalias %values, i64 %row_stride, i64 %rows, i64 %cols, ptr noalias %factors) #0");
  ir.loop("0", "%rows", 1, {}, [&](const std::string& row, const IrWriter::Values&) {
    const std::string factor = ir.load("float", ir.element_pointer("float", "%factors", row), 4);
    const std::string factors = ir.splat("float", factor);
    const std::string start = ir.binary("mul", "i64", row, "%row_stride");
    ir.loop("0", "%cols", ir_lanes, {}, [&](const std::string& col, const IrWriter::Values&) {
      const std::string pointer = ir.element_pointer("float", "%values", ir.binary("add", "i64", start, col));
      ir.store(ir_floats, ir.binary("fmul", ir_floats, ir.load(ir_floats, pointer, 4), factors), pointer, 4);
      return IrWriter::Values{};
    });
    return IrWriter::Values{};
  });
  return ir.finish();
}

std::string emit_gradient_step(const TileConfig& tile, bool masked, bool with_derivative) {
  IrWriter ir(concat("define void @", masked ? "gradient_masked" : "gradient_full",
                     "(ptr noalias %scores, ptr noalias %gradients, ptr noalias %derivatives, i64 %rows, i64 %cols, "
                     "ptr noalias %bits, ptr noalias %lse, ptr noalias %delta) #0"));
  const TileAddress address{tile.block_n};
  const std::string vectors = vector_count(ir, "%cols");
  ir.loop("0", "%rows", 1, {}, [&](const std::string& row, const IrWriter::Values&) {
    const std::string lse = ir.splat("float", ir.load("float", ir.element_pointer("float", "%lse", row), 4));
    const std::string delta = ir.splat("float", ir.load("float", ir.element_pointer("float", "%delta", row), 4));
    ir.loop("0", vectors, 1, {}, [&](const std::string& vector, const IrWriter::Values&) {
      const std::string score_pointer = address.floats(ir, "%scores", row, vector);
      const std::string gradient_pointer = address.floats(ir, "%gradients", row, vector);
      const std::string shifted = ir.binary("fsub", ir_floats, ir.load(ir_floats, score_pointer, 4), lse);
      std::string probability = exp_probability(ir, shifted);
      const std::string centred = ir.binary("fsub", ir_floats, ir.load(ir_floats, gradient_pointer, 4), delta);
      std::string gradient = ir.binary("fmul", ir_floats, probability, centred);
      if (with_derivative) {
        const std::string slope = ir.load(ir_floats, address.floats(ir, "%derivatives", row, vector), 4);
        gradient = ir.binary("fmul", ir_floats, gradient, slope);
      }
      if (masked) {
        const std::string visible = address.visible(ir, row, vector);
        probability = select_visible(ir, visible, probability, "zeroinitializer");
        gradient = select_visible(ir, visible, gradient, "zeroinitializer");
      }
      ir.store(ir_floats, probability, score_pointer, 4);
      ir.store(ir_floats, gradient, gradient_pointer, 4);
      return IrWriter::Values{};
    });
    return IrWriter::Values{};
  });
  return ir.finish();
}

// One chain of fused multiply-adds a row, in the order of gemm: where a row sees a single key, its sum of dO * O is
// then equal to dO . v to the bit and its score gradient exactly zero. An element of %left, which is O, that is 0 adds
// 0 whatever %right holds: rows that see nothing but a sink consist of them, and their dO must not show.
std::string emit_row_dots() {
  IrWriter ir(
      "define void @row_dots(ptr noalias %left, ptr noalias %right, i64 %row_stride, i64 %rows, i64 %cols, "
      "ptr noalias %dots) #0");
  ir.loop("0", "%rows", ir_lanes, {}, [&](const std::string& row, const IrWriter::Values&) {
    const auto load_columns = [&](const std::string& base, const std::string& col) {
      std::array<std::string, ir_lanes> block;
      for (int i = 0; i < ir_lanes; ++i) {
        const std::string index = ir.define(concat("add i64 ", row, ", ", i));
        const std::string offset = ir.binary("add", "i64", ir.binary("mul", "i64", index, "%row_stride"), col);
        block[static_cast<std::size_t>(i)] = ir.load(ir_floats, ir.element_pointer("float", base, offset), 4);
      }
      transpose_block(ir, block);
      return block;
    };
    const IrWriter::Values sums = ir.loop(
        "0", "%cols", ir_lanes, {{ir_floats, "zeroinitializer"}},
        [&](const std::string& col, const IrWriter::Values& now) {
          const auto left = load_columns("%left", col);
          const auto right = load_columns("%right", col);
          std::string sum = now[0];
          for (std::size_t i = 0; i < left.size(); ++i) {
            const std::string counts = ir.define(concat("fcmp une ", ir_floats, " ", left[i], ", zeroinitializer"));
            sum = ir.fused(left[i], select_visible(ir, counts, right[i], "zeroinitializer"), sum);
          }
          return IrWriter::Values{sum};
        });
    ir.store(ir_floats, sums[0], ir.element_pointer("float", "%dots", row), 4);
    return IrWriter::Values{};
  });
  return ir.finish();
}

}  // namespace

std::string emit_llvm_softmax(const TileConfig& tile) {
  return emit_softmax_step(tile, false) + emit_softmax_step(tile, true) + emit_rescale_rows();
}

std::string emit_llvm_gradient(const TileConfig& tile, bool with_derivative) {
  return emit_gradient_step(tile, false, with_derivative) + emit_gradient_step(tile, true, with_derivative) +
         emit_row_dots();
}

}  // namespace flashspan::kernel
