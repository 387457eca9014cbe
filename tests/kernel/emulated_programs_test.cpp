// Emitted predicates, analyses and scores, run on the host, against the direct evaluation of the same programs.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "codegen/kernel/emit_cuda.hpp"
#include "codegen/kernel/template_library.hpp"
#include "codegen/mask/evaluate.hpp"
#include "codegen/mask/parser.hpp"
#include "codegen/mask/simplify.hpp"
#include "runtime/cuda/launch_arguments.hpp"
#include "tests/kernel/emulator/emulated_kernel.hpp"
#include "tests/mask/random_programs.hpp"

namespace flashspan::test {
namespace {

using mask::Program;
using mask::ProgramKind;

constexpr int program_count = 60;

struct RandomProgram {
  mask::test::Environment environment;
  Program mask, score;
  std::string text;
};

/// One mask and one score over random tensors and scalars.
RandomProgram random_program(std::mt19937_64& random) {
  RandomProgram result;
  result.environment = mask::test::random_environment(random);
  const auto scalars = mask::test::scalar_declarations(result.environment);
  const auto tensors = mask::test::tensor_declarations(result.environment);
  const auto parsed = [&](ProgramKind kind, mask::ValueType type, const mask::test::Grammar& grammar) {
    const auto expression = mask::test::random_expression(random, type, grammar);
    result.text += expression.text + "\n";
    const auto program = mask::parse(expression.text, kind, scalars, tensors);
    EXPECT_TRUE(program) << program.error().message();
    return program ? mask::simplify(*program) : Program();
  };
  result.mask = parsed(ProgramKind::mask, mask::ValueType::boolean, {});
  result.score = parsed(ProgramKind::score, mask::ValueType::real, {.may_use_score = true});
  return result;
}

/// All programs in one source: what the device would compile, with functions of plain C around.
std::string host_source(const std::vector<RandomProgram>& programs) {
  kernel::SourceText source;
  for (const kernel::TemplateFile& file : kernel::template_library()) {
    source.files.push_back({std::string(file.name), std::string(file.text)});
  }
  std::string functions;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const std::string name = "MaskProgram" + std::to_string(i);
    std::string text = kernel::emit_mask_program(programs[i].mask, &programs[i].score);
    text.replace(text.find("struct MaskProgram"), sizeof("struct MaskProgram") - 1, "struct " + name);
    const std::string file = "program" + std::to_string(i) + ".cuh";
    source.files.push_back({file, text});
    source.main += "#include \"" + file + "\"\n";
    const auto function = [&](const std::string& type, const std::string& what, const std::string& parameters,
                              const std::string& body) {
      functions += "extern \"C\" __attribute__((visibility(\"default\"))) " + type + " " + what + std::to_string(i) +
                   "(const flashspan_device::ProgramArguments& arguments" + parameters + ") {\n" +
                   "  using namespace flashspan_device;\n" + body + "}\n";
    };
    const std::string point = ", int b, int h, int q, int k, int q_len, int kv_len";
    function("bool", "visible", point, "  return " + name + "::visible(arguments, b, h, q, k, q_len, kv_len);\n");
    function("float", "score", point + ", float score",
             "  return " + name + "::score(arguments, b, h, q, k, q_len, kv_len, score);\n");
    // The 32 lanes of a warp analyse one tile; all must come to one answer.
    function("int", "classify", ", const long long* tile, int q_len, int kv_len",
             "  int kinds[32];\n"
             "  const char* wrong = emulation::run_grid(1, 32, 0, [&] {\n"
             "    kinds[threadIdx.x] = static_cast<int>(" +
                 name +
                 "::classify(arguments, {tile[0], tile[1]}, {tile[2], tile[3]}, {tile[4], tile[5]}, "
                 "{tile[6], tile[7]}, q_len, kv_len));\n"
                 "  });\n"
                 "  if (wrong[0] != 0) return -1;\n"
                 "  for (int lane = 1; lane < 32; ++lane) if (kinds[lane] != kinds[0]) return -2;\n"
                 "  return kinds[0];\n");
  }
  return "#include \"device.hpp\"\n" + for_the_emulator(source) + functions;
}

class EmulatedPrograms : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::mt19937_64 random(20251129);
    for (int i = 0; i < program_count; ++i) programs().push_back(random_program(random));
    const auto library = compile_for_host(host_source(programs()));
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

TEST_F(EmulatedPrograms, PredicatesAgreeWithDirectEvaluation) {
  using Visible = bool (*)(const flashspan_device::ProgramArguments&, int, int, int, int, int, int);
  int visible_points = 0;
  for (std::size_t i = 0; i < programs().size(); ++i) {
    RandomProgram& program = programs()[i];
    const auto bindings = mask::test::bindings_for(program.mask, program.environment);
    const auto arguments = arguments_of(program.mask, bindings);
    const auto visible = function<Visible>("visible", i);
    for_each_point([&](const mask::Point& at) {
      const bool got = visible(arguments, static_cast<int>(at.b), static_cast<int>(at.h), static_cast<int>(at.q),
                               static_cast<int>(at.k), 9, 11);
      ASSERT_EQ(got, mask::evaluate_mask(program.mask, bindings, at)) << program.text << at.q << ", " << at.k;
      visible_points += got ? 1 : 0;
    });
  }
  EXPECT_GT(visible_points, 1000);
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
