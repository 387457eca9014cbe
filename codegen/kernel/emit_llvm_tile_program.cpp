// emit_llvm_tile_program.cpp -- a program over one tile: keys in vectors outside, query rows inside, so that what
// depends on the keys alone (doc[k]) is looked up once per 16 columns and not once per pair.
#include "codegen/kernel/emit_llvm_parts.hpp"
#include "codegen/kernel/emit_llvm_program.hpp"

namespace flashspan::kernel {
namespace {

using Kind = IrValue::Kind;
using mask::Variable;

constexpr const char* tile_parameters =
    "ptr %program, i64 %b, i64 %h, i64 %q_begin, i64 %k_begin, i64 %rows, i64 %cols";

IrValue keys_of_vector(IrWriter& ir, const std::string& column) {
  const std::string first = ir.define(concat("trunc i64 ", ir.binary("add", "i64", "%k_begin", column), " to i32"));
  return {ir.binary("add", ir_ints, ir.splat("i32", first), lane_numbers()), Kind::int32, true};
}

void start_program(ProgramEmitter& program) {
  program.load_program_data();
  program.set_variable(Variable::b, {"%b", Kind::int64, false});
  program.set_variable(Variable::h, {"%h", Kind::int64, false});
  program.emit_level(ProgramEmitter::Level::tile);
}

void set_query(IrWriter& ir, ProgramEmitter& program, const std::string& row) {
  program.set_variable(Variable::q, {ir.binary("add", "i64", "%q_begin", row), Kind::int64, false});
}

}  // namespace

std::string emit_llvm_mask(const mask::Program& mask, const TileConfig& tile) {
  IrWriter ir(concat("define i64 @mask_tile(", tile_parameters, ", ptr noalias %bits) #0"));
  ProgramEmitter program(ir, mask);
  start_program(program);
  const auto sum =
      ir.loop("0", "%cols", ir_lanes, {{"i64", "0"}}, [&](const std::string& col, const IrWriter::Values& total) {
        program.set_variable(Variable::k, keys_of_vector(ir, col));
        program.emit_level(ProgramEmitter::Level::key_vector);
        const std::string left = ir.define(concat("trunc i64 ", ir.binary("sub", "i64", "%cols", col), " to i32"));
        const std::string inside =
            ir.define(concat("icmp slt ", ir_ints, " ", lane_numbers(), ", ", ir.splat("i32", left)));
        const std::string word = ir.define(concat("udiv i64 ", col, ", ", ir_lanes));
        return ir.loop("0", "%rows", 1, {{"i64", total[0]}}, [&](const std::string& row, const IrWriter::Values& now) {
          set_query(ir, program, row);
          program.emit_level(ProgramEmitter::Level::row);
          const std::string visible = ir.binary("and", ir_bools, program.root_vector(), inside);
          const std::string bits = ir.define(concat("bitcast ", ir_bools, " ", visible, " to i16"));
          const std::string row_offset = ir.define(concat("mul i64 ", row, ", ", tile.block_n / ir_lanes));
          ir.store("i16", bits, ir.element_pointer("i16", "%bits", ir.binary("add", "i64", row_offset, word)), 2);
          const std::string count = ir.define(concat("call i16 @llvm.ctpop.i16(i16 ", bits, ")"));
          return IrWriter::Values{ir.binary("add", "i64", now[0], ir.define(concat("zext i16 ", count, " to i64")))};
        });
      });
  return ir.finish(concat("i64 ", sum[0]));
}

namespace {

/// What a function over the scores of a tile stores for 16 pairs, once every node is emitted.
struct PairResult {
  const char* vector_type;
  const char* element_type;
  int element_bytes;
  std::string (ProgramEmitter::*vector)();
};

std::string emit_score_function(const std::string& name, const mask::Program& score, const TileConfig& tile,
                                const PairResult& result) {
  IrWriter ir(concat("define void @", name, "(", tile_parameters, ", ptr %scores, ptr %results) #0"));
  ProgramEmitter program(ir, score);
  start_program(program);
  ir.loop("0", "%cols", ir_lanes, {}, [&](const std::string& col, const IrWriter::Values&) {
    program.set_variable(Variable::k, keys_of_vector(ir, col));
    program.emit_level(ProgramEmitter::Level::key_vector);
    ir.loop("0", "%rows", 1, {}, [&](const std::string& row, const IrWriter::Values&) {
      const std::string row_offset = ir.define(concat("mul i64 ", row, ", ", tile.block_n));
      const std::string offset = ir.binary("add", "i64", row_offset, col);
      set_query(ir, program, row);
      program.set_variable(Variable::score,
                           {ir.load(ir_floats, ir.element_pointer("float", "%scores", offset), 4), Kind::real, true});
      program.emit_level(ProgramEmitter::Level::row);
      ir.store(result.vector_type, (program.*result.vector)(),
               ir.element_pointer(result.element_type, "%results", offset), result.element_bytes);
      return IrWriter::Values{};
    });
    return IrWriter::Values{};
  });
  return ir.finish();
}

constexpr PairResult score_result{ir_floats, "float", 4, &ProgramEmitter::root_vector};
constexpr PairResult element_result{ir_longs, "i64", 8, &ProgramEmitter::element_number_vector};

/// A function `name` that calls `name`_0, `name`_1, ... with one tile of results after another.
std::string emit_calls(const std::string& name, std::size_t count, const TileConfig& tile, const PairResult& result) {
  IrWriter ir(concat("define void @", name, "(", tile_parameters, ", ptr %scores, ptr %results) #0"));
  for (std::size_t i = 0; i < count; ++i) {
    const std::string first = std::to_string(i * static_cast<std::size_t>(tile.block_m * tile.block_n));
    ir.line(concat("call void @", name, "_", i, "(", tile_parameters, ", ptr %scores, ptr ",
                   ir.element_pointer(result.element_type, "%results", first), ")"));
  }
  return ir.finish();
}

}  // namespace

std::string emit_llvm_score(const std::string& name, const mask::Program& score, const TileConfig& tile) {
  return emit_score_function(name, score, tile, score_result);
}

std::string emit_llvm_score_lookups(const std::vector<ScoreLookup>& lookups, const TileConfig& tile) {
  std::string text;
  for (std::size_t i = 0; i < lookups.size(); ++i) {
    text += emit_score_function(concat("lookup_slope_tiles_", i), lookups[i].slope, tile, score_result);
    text += emit_score_function(concat("lookup_element_tiles_", i), lookups[i].at, tile, element_result);
  }
  return text + emit_calls("lookup_slope_tiles", lookups.size(), tile, score_result) +
         emit_calls("lookup_element_tiles", lookups.size(), tile, element_result);
}

}  // namespace flashspan::kernel
