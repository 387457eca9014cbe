// Emitted CUDA: the generated headers, the files that come with them, and one flat text that compiles alone.
#include "codegen/kernel/emit_cuda.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "codegen/kernel/template_library.hpp"
#include "codegen/mask/parser.hpp"
#include "codegen/mask/simplify.hpp"
#include "tests/cuda/kernel_specs.hpp"

namespace flashspan::kernel {
namespace {

using cuda::make_spec;
using testing::HasSubstr;

mask::Program parsed(const std::string& text, std::vector<mask::ScalarDeclaration> scalars = {},
                     std::vector<mask::TensorDeclaration> tensors = {}) {
  const auto program = mask::parse(text, mask::ProgramKind::mask, scalars, tensors);
  EXPECT_TRUE(program) << program.error().message();
  return mask::simplify(*program);
}

SourceText emitted(const cuda::SpecRequest& request) {
  const auto spec = make_spec(request);
  EXPECT_TRUE(spec) << spec.error().message();
  auto source = emit_cuda(*spec);
  EXPECT_TRUE(source) << source.error().message();
  return *std::move(source);
}

const std::string& text_of(const SourceText& source, const std::string& name) {
  static const std::string none;
  const auto found =
      std::find_if(source.files.begin(), source.files.end(), [&](const auto& file) { return file.name == name; });
  return found == source.files.end() ? none : found->text;
}

std::set<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::set<std::string> names;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match)
    names.insert((*match)[1]);
  return names;
}

std::string file_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(EmitCuda, StandInsDeclareTheNamesThatAreEmitted) {
  const std::filesystem::path stand_ins = std::filesystem::path(FLASHSPAN_SOURCE_DIR) / "templates/generated";
  const SourceText source = emitted({.score = &cuda::softcap_and_alibi});
  const std::string constants = "constexpr \\w+ (\\w+) =";
  EXPECT_EQ(matches(text_of(source, "generated/kernel_spec.cuh"), constants),
            matches(file_text(stand_ins / "kernel_spec.cuh"), constants));
  const SourceText looked_up =
      emitted({.direction = Direction::backward, .score = &cuda::looked_up_scores, .score_gradients = "factor,of_key"});
  EXPECT_EQ(matches(text_of(looked_up, "generated/score_lookups.cuh"), constants),
            matches(file_text(stand_ins / "score_lookups.cuh"), constants));
  const std::string functions = "static __device__ [\\w ]+ (\\w+)\\(";
  EXPECT_EQ(matches(text_of(source, "generated/mask_program.cuh"), functions),
            matches(file_text(stand_ins / "mask_program.cuh"), functions));
}

TEST(EmitCuda, OnlyReachableFilesComeAlongAndAreSorted) {
  const SourceText forward = emitted({});
  EXPECT_TRUE(std::is_sorted(forward.files.begin(), forward.files.end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  EXPECT_NE(text_of(forward, "attention/forward_mma.cuh"), "");
  EXPECT_EQ(text_of(forward, "attention/backward_mma.cuh"), "");
  EXPECT_EQ(text_of(emitted({.direction = Direction::backward}), "attention/forward_mma.cuh"), "");
  EXPECT_EQ(text_of(emitted({.mask = nullptr}), "plan/plan_tiles.cuh"), "");
}

TEST(EmitCuda, StandInsAreNotEmbedded) {
  for (const TemplateFile& file : template_library()) {
    EXPECT_FALSE(file.name.starts_with("generated/") || file.name.starts_with("lint/")) << file.name;
    EXPECT_FALSE(file.text.empty()) << file.name;
  }
}

TEST(EmitCuda, EntryPointsFollowDirectionAndFamily) {
  using testing::ElementsAre;
  const auto entry_points = [](const cuda::SpecRequest& request) {
    return emitted(request).programs.front().entry_points;
  };
  EXPECT_THAT(entry_points({}), ElementsAre(entry_forward));
  EXPECT_THAT(entry_points({.direction = Direction::backward}),
              ElementsAre(entry_backward_delta, entry_backward_sink, entry_backward_dq, entry_backward_dkdv));
  EXPECT_THAT(
      entry_points({.arch = {90, 'a'}, .direction = Direction::backward}),
      ElementsAre(entry_backward_delta, entry_backward_sink, entry_backward_tiles, entry_backward_query_gradient));
}

TEST(EmitCuda, ThePlannerOfAMaskIsAProgramOfItsOwn) {
  using testing::ElementsAre;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const SourceText source = emitted({.direction = direction});
    ASSERT_EQ(source.programs.size(), 2u);
    EXPECT_EQ(source.programs[0].name, "");
    EXPECT_THAT(source.programs[0].main, testing::Not(HasSubstr("plan/")));
    EXPECT_EQ(source.programs[1].name, "planner");
    EXPECT_EQ(source.programs[1].main, "#include \"plan/plan_tiles.cuh\"\n");
    EXPECT_THAT(source.programs[1].entry_points, ElementsAre(entry_plan_tiles));
    EXPECT_EQ(source.main(), source.programs[0].main + source.programs[1].main);
    EXPECT_EQ(emitted({.direction = direction, .mask = nullptr}).programs.size(), 1u);
  }
}

TEST(EmitCuda, AnInterpretedMaskComesWithAKernelThatBringsItsCode) {
  KernelSpec spec = *make_spec({});
  spec.lowering = LoweringKind::interpreted;
  const auto source = emit_cuda(spec);
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_THAT(source->programs.at(1).entry_points, testing::Contains(entry_plan_program));
}

TEST(EmitCuda, TheGradientOfTheQueryHasAPassOfItsOwnWhereItsSumsNeedAnOrder) {
  const SourceText one = emitted({.arch = {90, 'a'}, .direction = Direction::backward});
  const SourceText two = emitted({.arch = {90, 'a'}, .direction = Direction::backward, .deterministic = true});
  EXPECT_EQ(one.programs[0].entry_points, two.programs[0].entry_points);
  EXPECT_THAT(one.main(), HasSubstr("attention/backward_query_sums.cuh"));
  EXPECT_THAT(two.main(), HasSubstr("attention/backward_query_pass.cuh"));
  EXPECT_THAT(text_of(one, "generated/kernel_spec.cuh"), HasSubstr("bits_by_query = false;"));
  EXPECT_THAT(text_of(two, "generated/kernel_spec.cuh"), HasSubstr("bits_by_query = true;"));
}

TEST(EmitCuda, ScoreGradientsAddTheirKernelsAndNothingElse) {
  for (const Arch arch : {Arch{80, 0}, Arch{90, 'a'}}) {
    cuda::SpecRequest request{.arch = arch, .direction = Direction::backward, .score = &cuda::looked_up_scores};
    const SourceText without = emitted(request);
    request.score_gradients = "factor,of_key";
    const SourceText with = emitted(request);
    EXPECT_EQ(text_of(without, "generated/score_lookups.cuh"), "");
    EXPECT_EQ(text_of(without, "attention/backward_score.cuh"), "");
    EXPECT_NE(text_of(with, "attention/backward_score.cuh"), "");
    EXPECT_EQ(with.programs[0].main, without.programs[0].main + "#include \"attention/backward_score.cuh\"\n");
    auto entries = without.programs[0].entry_points;
    entries.insert(entries.end(), {entry_backward_score_clear, entry_backward_score_sum, entry_backward_score_round});
    EXPECT_EQ(with.programs[0].entry_points, entries);
    const std::string& lookups = text_of(with, "generated/score_lookups.cuh");
    EXPECT_THAT(lookups, HasSubstr("score_lookups = 2;"));
    EXPECT_THAT(lookups, HasSubstr("derivative of score by factor[h]"));
    EXPECT_THAT(lookups, HasSubstr("indices of of_key[b, k]"));
    EXPECT_THAT(lookups, testing::Not(HasSubstr("bias")));
  }
}

TEST(EmitCuda, IntegersAre32BitOnlyWhereThatIsExact) {
  EXPECT_THAT(emit_mask_program(parsed("q - k < 100"), nullptr), HasSubstr("const int n2 = n0 - n1;"));
  EXPECT_THAT(emit_mask_program(parsed("q * k < 100"), nullptr), HasSubstr("wrapping_multiply(static_cast<int64>"));
  // A scalar may be any 64-bit integer.
  EXPECT_THAT(emit_mask_program(parsed("q + left < k", {{"left", mask::ValueType::integer}}), nullptr),
              HasSubstr("wrapping_add"));
}

TEST(EmitCuda, RangesStandInTheProgramOfTheirLoweringOnly) {
  KernelSpec spec = *make_spec({.mask = &cuda::causal});
  const auto program_text = [&spec](LoweringKind lowering) {
    spec.lowering = lowering;
    const auto source = emit_cuda(spec);
    EXPECT_TRUE(source) << source.error().message();
    EXPECT_THAT(text_of(*source, "generated/kernel_spec.cuh"),
                HasSubstr(std::string("constexpr Lowering lowering = Lowering::") + to_string(lowering) + ";"));
    return text_of(*source, "generated/mask_program.cuh");
  };
  EXPECT_THAT(program_text(LoweringKind::row_ranges),
              testing::AllOf(HasSubstr("row_ranges = 1;"), HasSubstr("column_ranges = 0;")));
  EXPECT_THAT(program_text(LoweringKind::column_bounds),
              testing::AllOf(HasSubstr("row_ranges = 0;"), HasSubstr("column_ranges = 1;")));
  for (const LoweringKind other : {LoweringKind::bit_tiles, LoweringKind::expression}) {
    EXPECT_THAT(program_text(other), testing::AllOf(HasSubstr("row_ranges = 0;"), HasSubstr("column_ranges = 0;")));
  }
}

TEST(EmitCuda, ASpecWhoseMaskHasNoRangesForItsLoweringIsAnError) {
  KernelSpec spec = *make_spec({.mask = &cuda::causal_documents});
  spec.lowering = LoweringKind::row_ranges;
  const auto source = emit_cuda(spec);
  ASSERT_FALSE(source);
  EXPECT_THAT(source.error().message(), HasSubstr("doc[b, k] is looked up by k"));
}

TEST(EmitCuda, LookupsOfOneSideAreMadeOnceARowOrColumn) {
  const std::string text = emit_mask_program(
      parsed("x[q] + x[k] + x[q - k] < 3 and y[b, k] == 1", {}, {{"x", DType::i32, 1}, {"y", DType::i32, 2}}), nullptr);
  EXPECT_THAT(text, HasSubstr("row_lookups = 1;"));
  EXPECT_THAT(text, HasSubstr("column_lookups = 2;"));
  EXPECT_THAT(text, HasSubstr("lookups_by_tile = true;")) << "x[q - k]";
  EXPECT_THAT(text, HasSubstr("= row[0];"));
  EXPECT_THAT(text, HasSubstr("= column[1];"));
}

TEST(EmitCuda, LookupsInLoopsStayInThem) {
  const std::string text =
      emit_mask_program(parsed("any(r[q, i] == k for i in range(2))", {}, {{"r", DType::i32, 2}}), nullptr);
  EXPECT_THAT(text, HasSubstr("row_lookups = 0;"));
  EXPECT_THAT(text, HasSubstr("lookups_by_tile = true;"));
}

TEST(EmitCuda, RealLookupsTakeNoPartInTheAnalysis) {
  const std::string text =
      emit_mask_program(parsed("w[q] + w[q + k] < 1.0 or q >= k", {}, {{"w", DType::f16, 1}}), nullptr);
  EXPECT_THAT(text, HasSubstr("row_lookups = 1;"));
  EXPECT_THAT(text, HasSubstr("lookups_by_tile = false;"));
  EXPECT_THAT(text, HasSubstr("__int_as_float(row[0])"));
}

TEST(EmitCuda, CompileErrorsWillPointIntoTheMask) {
  EXPECT_THAT(emit_mask_program(parsed("q >= k"), nullptr), HasSubstr("#line 1 \"mask: k <= q\""));
}

TEST(EmitCuda, LoopsBecomeLoopsInBothReadings) {
  const std::string text = emit_mask_program(
      parsed("any(r[q, i] == k for i in range(n))", {{"n", mask::ValueType::integer}}, {{"r", DType::i32, 2}}),
      nullptr);
  EXPECT_THAT(text, HasSubstr("for (int64 loop"));
  EXPECT_THAT(text, HasSubstr("LoopRange"));
  EXPECT_THAT(text, HasSubstr("lookup_range<2>("));
}

TEST(EmitCuda, ASpecWhoseMaskDoesNotParseIsAnError) {
  KernelSpec spec = *make_spec({});
  spec.mask = "q >= ";
  EXPECT_FALSE(emit_cuda(spec));
}

TEST(EmitCuda, FlattenedTextHoldsEveryFileOnceAndNoInclude) {
  const SourceText source = emitted({});
  const std::string flat = source.flattened();
  EXPECT_EQ(flat.find("#include"), std::string::npos);
  EXPECT_EQ(flat.find("#pragma once"), std::string::npos);
  for (const SourceFile& file : source.files) {
    const std::string marker = "#line 1 \"" + file.name + "\"\n";
    const std::size_t first = flat.find(marker);
    ASSERT_NE(first, std::string::npos) << file.name;
    EXPECT_EQ(flat.find(marker, first + 1), std::string::npos) << file.name;
  }
}

TEST(EmitCuda, FlattenedTextCompilesAloneWithNvcc) {
  if (std::system("nvcc --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no nvcc on this machine";
  const auto folder = std::filesystem::temp_directory_path() / ("flashspan-flat-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const auto source = folder / (std::string(to_string(direction)) + ".cu");
    std::ofstream(source)
        << emitted({.arch = {90, 0}, .direction = direction, .score = &cuda::softcap_and_alibi}).flattened();
    const std::string command = "nvcc -std=c++17 -arch=sm_90 -cubin -o " + (folder / "out.cubin").string() + " " +
                                source.string() + " > " + (folder / "log").string() + " 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << file_text(folder / "log");
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace flashspan::kernel
