// Emitted predicates, analyses and scores, run on the host, against the direct evaluation of the same programs.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <optional>
#include <random>

#include "codegen/kernel/emit_cuda.hpp"
#include "codegen/kernel/template_library.hpp"
#include "codegen/mask/evaluate.hpp"
#include "codegen/mask/parser.hpp"
#include "codegen/mask/simplify.hpp"
#include "codegen/mask/visible_ranges.hpp"
#include "runtime/cuda/launch_arguments.hpp"
#include "runtime/cuda/program_code.hpp"
#include "tests/kernel/emulator/emulated_kernel.hpp"
#include "tests/mask/random_programs.hpp"
#include "tests/mask/range_masks.hpp"

namespace flashspan::test {
namespace {

using mask::Program;
using mask::ProgramKind;

constexpr int program_count = 60;

struct RandomProgram {
  mask::test::Environment environment;
  Program mask, score;
  std::string text;
  mask::RangeDerivation rows, columns;
};

/// One mask and one score over random tensors and scalars; the mask is of ranges along `axis` if that is given.
RandomProgram random_program(std::mt19937_64& random, std::optional<mask::Variable> axis) {
  RandomProgram result;
  result.environment = mask::test::random_environment(random);
  const auto scalars = mask::test::scalar_declarations(result.environment);
  const auto tensors = mask::test::tensor_declarations(result.environment);
  const auto parsed = [&](ProgramKind kind, const std::string& text) {
    result.text += text + "\n";
    const auto program = mask::parse(text, kind, scalars, tensors);
    EXPECT_TRUE(program) << program.error().message();
    return program ? mask::simplify(*program) : Program();
  };
  result.mask =
      parsed(ProgramKind::mask, axis ? mask::test::random_range_mask(random, *axis, 2)
                                     : mask::test::random_expression(random, mask::ValueType::boolean, {}).text);
  result.rows = mask::derive_visible_ranges(result.mask, mask::Variable::k);
  result.columns = mask::derive_visible_ranges(result.mask, mask::Variable::q);
  result.score = parsed(ProgramKind::score,
                        mask::test::random_expression(random, mask::ValueType::real, {.may_use_score = true}).text);
  return result;
}

std::string name_of(std::size_t program) { return "MaskProgram" + std::to_string(program); }

/// Calls ranges_of_row or ranges_of_column and copies what it gives; returns the number of ranges.
std::string body_of_ranges(const std::string& name, const std::string& axis) {
  const std::string count = name + "::" + axis + "_ranges";
  return "  int begin[" + count + " > 0 ? " + count + " : 1], end[" + count + " > 0 ? " + count + " : 1];\n  " + name +
         "::ranges_of_" + axis + "(arguments, b, h, index, q_len, kv_len, begin, end);\n  for (int i = 0; i < " +
         count + "; ++i) begins[i] = begin[i], ends[i] = end[i];\n  return " + count + ";\n";
}

/// Functions of plain C around one program.
std::string functions_of(std::size_t program) {
  const std::string name = name_of(program);
  std::string functions;
  const auto function = [&](const std::string& type, const std::string& what, const std::string& parameters,
                            const std::string& body) {
    functions += "extern \"C\" __attribute__((visibility(\"default\"))) " + type + " " + what +
                 std::to_string(program) + "(const flashspan_device::ProgramArguments& arguments" + parameters +
                 ") {\n  using namespace flashspan_device;\n" + body + "}\n";
  };
  const std::string point = ", int b, int h, int q, int k, int q_len, int kv_len";
  function("bool", "visible", point, "  return " + name + "::visible(arguments, b, h, q, k, q_len, kv_len);\n");
  function("float", "score", point + ", float score",
           "  return " + name + "::score(arguments, b, h, q, k, q_len, kv_len, score);\n");
  const std::string line = ", int b, int h, int index, int q_len, int kv_len, int* begins, int* ends";
  function("int", "ranges_of_row", line, body_of_ranges(name, "row"));
  function("int", "ranges_of_column", line, body_of_ranges(name, "column"));
  function("bool", "visible_by_sides", point,
           "  int row[8], column[8];\n  " + name + "::look_up_row(arguments, row, b, h, q, q_len, kv_len);\n  " + name +
               "::look_up_column(arguments, column, b, h, k, q_len, kv_len);\n  return " + name +
               "::visible(arguments, row, column, b, h, q, k, q_len, kv_len);\n");
  // The 32 lanes of a warp analyse one tile and must come to one answer; without lookups by tile one lane will do.
  function(
      "int", "classify", ", const long long* tile, int q_len, int kv_len",
      "  int kinds[32];\n  const int lanes = " + name + "::lookups_by_tile ? 32 : 1;\n" +
          "  const char* wrong = emulation::run_grid(1, 32, false, 0, [&] {\n"
          "    const Interval b{tile[0], tile[1]}, h{tile[2], tile[3]}, q{tile[4], tile[5]}, k{tile[6], tile[7]};\n"
          "    Interval row[8], column[8];\n    " +
          name + "::analyse_row(arguments, row, b, h, q, q_len, kv_len);\n    " + name +
          "::analyse_column(arguments, column, b, h, k, q_len, kv_len);\n"
          "    if (threadIdx.x < lanes) kinds[threadIdx.x] =\n        static_cast<int>(" +
          name +
          "::classify(arguments, row, column, b, h, q, k, q_len, kv_len));\n"
          "  });\n"
          "  if (wrong[0] != 0) return -1;\n"
          "  for (int lane = 1; lane < lanes; ++lane) if (kinds[lane] != kinds[0]) return -2;\n"
          "  return kinds[0];\n");
  return functions;
}

/// All programs in one source: what the device would compile, with functions of plain C around.
std::string host_source(const std::vector<RandomProgram>& programs) {
  kernel::SourceText source;
  for (const kernel::TemplateFile& file : kernel::template_library()) {
    source.files.push_back({std::string(file.name), std::string(file.text)});
  }
  std::string main, functions;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const kernel::EmittedRanges ranges{programs[i].rows.found ? &programs[i].rows.visible : nullptr,
                                       programs[i].columns.found ? &programs[i].columns.visible : nullptr};
    std::string text = kernel::emit_mask_program(programs[i].mask, &programs[i].score, ranges);
    text.replace(text.find("struct MaskProgram"), sizeof("struct MaskProgram") - 1, "struct " + name_of(i));
    const std::string file = "program" + std::to_string(i) + ".cuh";
    source.files.push_back({file, text});
    main += "#include \"" + file + "\"\n";
    functions += functions_of(i);
  }
  source.programs.push_back({"", main + "#include \"mask/interpreter.cuh\"\n", {}});
  functions +=
      "extern \"C\" __attribute__((visibility(\"default\"))) bool interpreted(\n"
      "    const flashspan_device::ProgramArguments& arguments, int b, int h, int q, int k, int q_len, int kv_len) {\n"
      "  return flashspan_device::interpret(arguments, b, h, q, k, q_len, kv_len);\n}\n";
  return for_the_emulator(source) + functions;
}

class EmulatedPrograms : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::mt19937_64 random(20251129);
    for (int i = 0; i < program_count; ++i) programs().push_back(random_program(random, std::nullopt));
    for (int i = 0; i < program_count; ++i) {
      programs().push_back(random_program(random, i % 2 == 0 ? mask::Variable::k : mask::Variable::q));
    }
    const auto library = compile_for_host("device.hpp", host_source(programs()));
    ASSERT_TRUE(library) << library.error().message();
    opened() = *library;
  }

  static std::vector<RandomProgram>& programs() {
    static std::vector<RandomProgram> all;
    return all;
  }
  static std::shared_ptr<void>& opened() {
    static std::shared_ptr<void> library;
    return library;
  }

  template <typename Function>
  static Function function(const char* what, std::size_t program) {
    return reinterpret_cast<Function>(symbol(opened(), (what + std::to_string(program)).c_str()));
  }

  /// Some points, inside and outside the tensors.
  template <typename Visit>
  static void for_each_point(const Visit& visit) {
    for (const std::int64_t b : {0, 1}) {
      for (const std::int64_t h : {0, 2}) {
        for (std::int64_t q = 0; q < 9; ++q) {
          for (std::int64_t k = 0; k < 11; ++k) visit(mask::Point{b, h, q, k, 9, 11, static_cast<float>(q - k) / 4});
        }
      }
    }
  }
};

flashspan_device::ProgramArguments arguments_of(const Program& program, const mask::Bindings& bindings) {
  const auto arguments = cuda::program_arguments("mask", &program, &bindings);
  EXPECT_TRUE(arguments) << arguments.error().message();
  return arguments ? *arguments : flashspan_device::ProgramArguments{};
}

using RangesOf = int(const flashspan_device::ProgramArguments&, int, int, int, int, int, int*, int*);

TEST_F(EmulatedPrograms, PredicatesAgreeWithDirectEvaluation) {
  using Visible = bool (*)(const flashspan_device::ProgramArguments&, int, int, int, int, int, int);
  int visible_points = 0;
  for (std::size_t i = 0; i < programs().size(); ++i) {
    RandomProgram& program = programs()[i];
    const auto bindings = mask::test::bindings_for(program.mask, program.environment);
    const auto arguments = arguments_of(program.mask, bindings);
    const auto visible = function<Visible>("visible", i);
    const auto by_sides = function<Visible>("visible_by_sides", i);
    for_each_point([&](const mask::Point& at) {
      const bool got = visible(arguments, static_cast<int>(at.b), static_cast<int>(at.h), static_cast<int>(at.q),
                               static_cast<int>(at.k), 9, 11);
      ASSERT_EQ(got, mask::evaluate_mask(program.mask, bindings, at)) << program.text << at.q << ", " << at.k;
      ASSERT_EQ(by_sides(arguments, static_cast<int>(at.b), static_cast<int>(at.h), static_cast<int>(at.q),
                         static_cast<int>(at.k), 9, 11),
                got)
          << program.text << at.q << ", " << at.k;
      visible_points += got ? 1 : 0;
    });
  }
  EXPECT_GT(visible_points, 1000);
}

TEST_F(EmulatedPrograms, TheInterpreterAgreesWithDirectEvaluation) {
  using Visible = bool(const flashspan_device::ProgramArguments&, int, int, int, int, int, int);
  auto* const interpreted = reinterpret_cast<Visible*>(symbol(opened(), "interpreted"));
  int visible_points = 0, loops = 0;
  for (RandomProgram& program : programs()) {
    const auto bindings = mask::test::bindings_for(program.mask, program.environment);
    auto arguments = arguments_of(program.mask, bindings);
    auto code = cuda::program_code(program.mask);
    ASSERT_TRUE(code) << code.error().message() << program.text;
    arguments.code = &*code;
    for_each_point([&](const mask::Point& at) {
      const bool got = interpreted(arguments, static_cast<int>(at.b), static_cast<int>(at.h), static_cast<int>(at.q),
                                   static_cast<int>(at.k), 9, 11);
      ASSERT_EQ(got, mask::evaluate_mask(program.mask, bindings, at)) << program.text << at.q << ", " << at.k;
      visible_points += got ? 1 : 0;
    });
    loops += program.mask.to_text().find("any(") == std::string::npos ? 0 : 1;
  }
  EXPECT_GT(visible_points, 1000);
  EXPECT_GT(loops, 5) << "programs with loops are among them";
}

/// One axis of a program's ranges, and what they are asked with.
struct EmittedRanges {
  const Program& mask;
  const mask::Bindings& bindings;
  const flashspan_device::ProgramArguments& arguments;
  bool of_row = true;  ///< ranges of keys for a query, else of queries for a key
  int expected_count = 0;
  RangesOf* ranges_of = nullptr;
};

/// The emitted ranges for one index hold just the indices of the other axis that are visible, lie in [0, length) and do
/// not end before they begin. Returns the number of those that are not empty.
int expect_ranges_as_evaluated(const EmittedRanges& emitted, int b, int h, int index) {
  const int length = emitted.of_row ? 11 : 9;
  std::array<int, mask::max_visible_ranges> begin{}, end{};
  const int count = emitted.ranges_of(emitted.arguments, b, h, index, 9, 11, begin.data(), end.data());
  EXPECT_EQ(count, emitted.expected_count);
  std::vector<bool> visible(static_cast<std::size_t>(length));
  int filled = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    EXPECT_TRUE(0 <= begin[i] && begin[i] <= end[i] && end[i] <= length) << begin[i] << ", " << end[i];
    for (int x = begin[i]; x < end[i]; ++x) visible.at(static_cast<std::size_t>(x)) = true;
    filled += begin[i] < end[i] ? 1 : 0;
  }
  for (int x = 0; x < length && count > 0; ++x) {
    const mask::Point at{b, h, emitted.of_row ? index : x, emitted.of_row ? x : index, 9, 11, 0};
    EXPECT_EQ(visible[static_cast<std::size_t>(x)], mask::evaluate_mask(emitted.mask, emitted.bindings, at))
        << at.q << ", " << at.k;
  }
  return filled;
}

TEST_F(EmulatedPrograms, RangesHoldWhatDirectEvaluationShows) {
  int filled = 0;
  for (std::size_t i = 0; i < programs().size(); ++i) {
    RandomProgram& program = programs()[i];
    SCOPED_TRACE(program.text);
    const auto bindings = mask::test::bindings_for(program.mask, program.environment);
    const auto arguments = arguments_of(program.mask, bindings);
    const EmittedRanges rows{program.mask,
                             bindings,
                             arguments,
                             true,
                             static_cast<int>(program.rows.visible.ranges.size()),
                             function<RangesOf*>("ranges_of_row", i)};
    const EmittedRanges columns{program.mask,
                                bindings,
                                arguments,
                                false,
                                static_cast<int>(program.columns.visible.ranges.size()),
                                function<RangesOf*>("ranges_of_column", i)};
    for (const int head : {0, 2}) {
      for (int q = 0; q < 9; ++q) filled += expect_ranges_as_evaluated(rows, 1, head, q);
      for (int k = 0; k < 11; ++k) filled += expect_ranges_as_evaluated(columns, 1, head, k);
    }
  }
  EXPECT_GT(filled, 750);
}

TEST_F(EmulatedPrograms, ScoresAgreeWithDirectEvaluationInEveryBit) {
  using Score = float (*)(const flashspan_device::ProgramArguments&, int, int, int, int, int, int, float);
  for (std::size_t i = 0; i < programs().size(); ++i) {
    RandomProgram& program = programs()[i];
    const auto bindings = mask::test::bindings_for(program.score, program.environment);
    const auto arguments = arguments_of(program.score, bindings);
    const auto score = function<Score>("score", i);
    for_each_point([&](const mask::Point& at) {
      const float got = score(arguments, static_cast<int>(at.b), static_cast<int>(at.h), static_cast<int>(at.q),
                              static_cast<int>(at.k), 9, 11, at.score);
      const float expected = mask::evaluate_score(program.score, bindings, at);
      if (std::isnan(got) && std::isnan(expected)) return;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(expected)) << program.text;
    });
  }
}

TEST_F(EmulatedPrograms, AnalysesAgreeWithTheHostsTileByTile) {
  using Classify = int (*)(const flashspan_device::ProgramArguments&, const long long*, int, int);
  std::array<int, 3> seen{};
  for (std::size_t i = 0; i < programs().size(); ++i) {
    RandomProgram& program = programs()[i];
    const auto bindings = mask::test::bindings_for(program.mask, program.environment);
    const auto arguments = arguments_of(program.mask, bindings);
    const auto classify = function<Classify>("classify", i);
    for (const long long q : {0, 3, 6}) {
      for (const long long k : {0, 4, 8}) {
        const std::array<long long, 8> tile{1, 1, 0, 0, q, q + 2, k, k + 3};
        const mask::TileBounds bounds{{1, 1}, {0, 0}, {q, q + 2}, {k, k + 3}, 9, 11};
        const int got = classify(arguments, tile.data(), 9, 11);
        ASSERT_EQ(got, static_cast<int>(mask::classify(program.mask, bindings, bounds))) << program.text;
        ++seen[static_cast<std::size_t>(got)];
      }
    }
  }
  for (const int count : seen) EXPECT_GT(count, 20) << "each kind of tile is among them";
}

}  // namespace
}  // namespace flashspan::test
