// user_error_test.cpp -- every mistake a user can make gives one line that names the argument, and exit code 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "attend_case.hpp"
#include "numpy_files.hpp"

namespace {

using namespace cli_test;
using oracle::Format;
using testing::AllOf;
using testing::HasSubstr;
using Arguments = std::vector<std::string>;

/// A run that would succeed, to be spoiled in one place.
class UserError : public testing::Test {
 protected:
  UserError() : arguments_(attend_arguments(folder_, random_problem({1, 4, 2, 8, 10, 16, 16}, Format::f32, 1))) {
    arguments_.insert(arguments_.end(), {"--mask", "causal"});
  }

  void set(const std::string& option, const std::string& value) {
    const auto found = std::find(arguments_.begin(), arguments_.end(), option);
    if (found == arguments_.end()) {
      arguments_.insert(arguments_.end(), {option, value});
    } else {
      *(found + 1) = value;
    }
  }

  std::string file(const std::string& name, const std::string& text) {
    write_text(folder_ / name, text);
    return folder_ / name;
  }

  std::string zeros(const std::string& name, const Shape& shape) {
    std::size_t count = 1;
    for (const std::int64_t length : shape) count *= static_cast<std::size_t>(length);
    return file(name, npy_f32(shape, std::vector<double>(count, 0)));
  }

  /// One error line that matches, exit code 2, and no output file.
  template <typename Matcher>
  void expect_error(const Matcher& matcher) {
    const Outcome outcome = flashspan_command(arguments_);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    const auto lines = outcome.error_lines();
    ASSERT_EQ(lines.size(), 1U) << outcome.err;
    EXPECT_THAT(lines.front(), matcher);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "o.npz"));
  }

  /// The line says what was given and what would be taken.
  template <typename... Parts>
  void expect_refusal(const Parts&... parts) {
    expect_error(AllOf(HasSubstr("got "), HasSubstr("; takes "), HasSubstr(parts)...));
  }

  Folder folder_;
  Arguments arguments_;
};

TEST_F(UserError, TheUnspoiledRunSucceeds) { EXPECT_EQ(flashspan_command(arguments_).exit_code, 0); }

TEST_F(UserError, UnknownMaskName) {
  set("--mask", "causall");
  expect_error(HasSubstr("causall"));
}

TEST_F(UserError, ANameThatNeitherMaskNorScoreUses) {
  const std::string bias = zeros("bias.npy", {4});
  set("--score", "score + bias[h]");
  set("--tensor", "bias=" + bias);
  EXPECT_EQ(flashspan_command(arguments_).exit_code, 0);
  std::filesystem::remove(folder_ / "o.npz");
  set("--tensor", "bais=" + bias);
  expect_error(HasSubstr("bais"));
  set("--score", "score + 1.0");
  expect_error(HasSubstr("bais"));
  set("--mask", file("ranges.json", R"({"ranges": "ranges.npy"})"));
  write_text(folder_ / "ranges.npy", npy_i32({1, 1, 8, 1, 2}, std::vector<std::int64_t>(16, 0)));
  expect_error(AllOf(HasSubstr("bais"), HasSubstr("score")));
}

TEST_F(UserError, MalformedExpressionGetsACaretUnderItsColumn) {
  set("--mask", "q >= ) k");
  const Outcome outcome = flashspan_command(arguments_);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.error_lines().size(), 1U) << outcome.err;
  const std::size_t text = outcome.err.find("q >= ) k\n");
  ASSERT_NE(text, std::string::npos) << outcome.err;
  const std::size_t line = outcome.err.rfind('\n', text) + 1;
  const std::size_t caret_line = outcome.err.find('\n', text) + 1;
  EXPECT_EQ(outcome.err.find('^', caret_line) - caret_line, text + 5 - line) << outcome.err;
}

TEST_F(UserError, NegativeWindow) {
  set("--mask", "window(left=-1, right=0)");
  expect_error(HasSubstr("left"));
}

TEST_F(UserError, MissingTensor) {
  set("--mask", "doc[q] == doc[k]");
  expect_error(HasSubstr("doc"));
}

TEST_F(UserError, TensorOptionWithoutAName) {
  set("--tensor", "doc.npy");
  expect_refusal("--tensor", "doc.npy", "name=file.npy");
}

TEST_F(UserError, TensorFileThatIsMissing) {
  set("--mask", "doc[q] == doc[k]");
  set("--tensor", "doc=" + (folder_ / "none.npy"));
  expect_refusal("--tensor doc", "none.npy", "No such file");
}

TEST_F(UserError, ScalarThatIsNoNumber) {
  set("--mask", "q - k < reach");
  set("--scalar", "reach=four");
  expect_refusal("--scalar", "reach=four", "name=number");
}

TEST_F(UserError, MissingInputFile) {
  set("--q", folder_ / "none.npy");
  expect_refusal("--q", "none.npy", "No such file");
}

TEST_F(UserError, FolderInPlaceOfAFile) {
  set("--v", folder_.path());
  expect_refusal("--v", "directory");
}

TEST_F(UserError, FileThatIsNotNumpy) {
  set("--k", file("k.npy", "hello"));
  expect_refusal("--k", "no .npy header", "numpy.save");
}

TEST_F(UserError, DoublePrecisionFile) {
  set("--q", file("q.npy", npy_text("<f8", {1}, std::string(8, '\0'))));
  expect_refusal("--q", "<f8", "f4, f2, i4 or i8");
}

TEST_F(UserError, IntegerQueries) {
  set("--q", file("q.npy", npy_i32({1, 8, 4, 1}, std::vector<std::int64_t>(32, 0))));
  expect_refusal("--q", "integers", "f4 or f2");
}

TEST_F(UserError, WrongRank) {
  set("--q", zeros("q.npy", {8, 4, 16}));
  expect_refusal("--q", "f32[8, 4, 16]", "rank 4");
}

TEST_F(UserError, KeysAndValuesOfOtherLengths) {
  set("--v", zeros("v.npy", {1, 9, 2, 16}));
  expect_refusal("--v", "f32[1, 9, 2, 16]", "length 10 as --k");
}

TEST_F(UserError, OtherBatch) {
  set("--k", zeros("k.npy", {2, 10, 2, 16}));
  expect_refusal("--k", "f32[2, 10, 2, 16]", "batch 1 as --q");
}

TEST_F(UserError, OtherHeadDim) {
  set("--k", zeros("k.npy", {1, 10, 2, 32}));
  expect_refusal("--k", "head dim 16 as --q");
}

TEST_F(UserError, HeadsThatDoNotDivide) {
  set("--k", zeros("k.npy", {1, 10, 3, 16}));
  set("--v", zeros("v.npy", {1, 10, 3, 16}));
  expect_refusal("--q", "f32[1, 8, 4, 16]", "a multiple of the 3 heads of --k");
}

TEST_F(UserError, SinkThatIsNotOneNumberAHead) {
  set("--sink", zeros("sink.npy", {3}));
  expect_refusal("--sink", "f32[3]", "one number for each of the 4 heads of --q");
  set("--sink", zeros("sink.npy", {1, 4}));
  expect_refusal("--sink", "f32[1, 4]", "one number for each of the 4 heads of --q");
  set("--sink", file("sink.npy", npy_i32({4}, {0, 0, 0, 0})));
  expect_refusal("--sink", "integers", "f4 or f2");
}

TEST_F(UserError, ScoreGradientOfNoTensor) {
  set("--score-gradient", "bias");
  expect_refusal("--score-gradient", "bias", "the name of a --tensor that --score looks up");
  set("--tensor", "v=" + zeros("v_table.npy", {10}));
  set("--score", "score + v[k]");
  set("--score-gradient", "v");
  expect_refusal("--score-gradient", "v", "another name for that --tensor: dv is the gradient of --v");
}

TEST_F(UserError, OutputGradientOfAnotherShape) {
  set("--do", zeros("do.npy", {1, 8, 4, 8}));
  expect_refusal("--do", "f32[1, 8, 4, 8]", "f32[1, 8, 4, 16]");
}

TEST_F(UserError, HeadDimThatNoKernelServes) {
  for (const char* name : {"q", "k", "v"}) {
    set(std::string("--") + name, zeros(std::string(name) + ".npy", {1, 4, 1, 300}));
  }
  set("--do", zeros("do.npy", {1, 4, 1, 300}));
  expect_error(HasSubstr("300"));
}

TEST_F(UserError, UnsupportedDtype) {
  set("--dtype", "f64");
  expect_refusal("--dtype", "f64", "f32, f16 or bf16");
}

TEST_F(UserError, UnknownDevice) {
  set("--device", "tpu");
  expect_error(HasSubstr("tpu"));
}

TEST_F(UserError, UnknownLayout) {
  set("--layout", "sbhd");
  expect_error(AllOf(HasSubstr("--layout"), HasSubstr("sbhd")));
}

TEST_F(UserError, UnknownOption) {
  set("--masks", "causal");
  expect_error(HasSubstr("--masks"));
}

TEST_F(UserError, MissingRequiredOption) {
  arguments_ = {"attend", "--mask", "causal"};
  expect_error(HasSubstr("required"));
}

TEST_F(UserError, OutputFolderThatIsMissing) {
  set("--out", folder_ / "none/o.npz");
  expect_refusal("--out", "none/o.npz", "writable folder");
}

TEST_F(UserError, JsonFileThatIsMissing) {
  set("--mask", folder_ / "none.json");
  expect_refusal("--mask", "none.json", "No such file");
}

TEST_F(UserError, JsonFileThatIsNotJson) {
  set("--mask", file("m.json", "{\"expr\": "));
  expect_refusal("--mask", "not JSON", "{flashmask, causal}");
}

TEST_F(UserError, JsonFileOfNoKnownForm) {
  for (const std::string text : {R"({"flashmask": "x.npy"})", R"({"expr": "q >= k", "causal": true})", R"({})",
                                 R"({"q_idx": "x.npy"})", R"([1, 2])"}) {
    set("--mask", file("m.json", text));
    expect_refusal("--mask", "m.json", "{q_ranges, k_ranges, types}");
  }
}

TEST_F(UserError, JsonEntryOfTheWrongType) {
  set("--mask", file("m.json", R"({"flashmask": "x.npy", "causal": "yes"})"));
  expect_refusal("causal", "\"yes\"", "true or false");
  set("--mask", file("m.json", R"({"ranges": 3})"));
  expect_refusal("ranges", "3", "a path");
}

TEST_F(UserError, OneHashWithoutTheOther) {
  set("--mask", file("m.json", R"({"q_idx": "a.npy", "k_idx": "b.npy", "q_hash": "c.npy"})"));
  expect_refusal("--mask", "q_hash and k_hash together");
}

TEST_F(UserError, NanAmongIndices) {
  std::vector<double> values(10, 8);
  values[6] = std::numeric_limits<double>::quiet_NaN();
  file("x.npy", npy_f32({1, 1, 10, 1}, values));
  set("--mask", file("m.json", R"({"flashmask": "x.npy", "causal": true})"));
  expect_refusal("flashmask", "NaN at [0, 0, 6, 0]", "int32 or int64");
}

TEST_F(UserError, RealsInPlaceOfIndices) {
  file("x.npy", npy_f32({1, 1, 10, 1}, std::vector<double>(10, 8)));
  set("--mask", file("m.json", R"({"flashmask": "x.npy", "causal": true})"));
  expect_refusal("flashmask", "f32[1, 1, 10, 1]", "int32 or int64");
}

TEST_F(UserError, IndexBeyondThirtyTwoBits) {
  file("x.npy", npy_i64({1, 1, 10, 1}, {1, 2, 3, std::int64_t{1} << 40, 5, 6, 7, 8, 9, 10}));
  set("--mask", file("m.json", R"({"flashmask": "x.npy", "causal": true})"));
  expect_refusal("flashmask", "1099511627776 at flat index 3", "32 bits");
}

TEST_F(UserError, MaskOfAnotherLength) {
  file("x.npy", npy_i32({1, 1, 11, 1}, std::vector<std::int64_t>(11, 8)));
  set("--mask", file("m.json", R"({"flashmask": "x.npy", "causal": true})"));
  expect_error(AllOf(HasSubstr("11"), HasSubstr("10")));
}

TEST_F(UserError, ChannelsThatDoNotFitTheCausalFlag) {
  file("x.npy", npy_i32({1, 1, 10, 4}, std::vector<std::int64_t>(40, 8)));
  set("--mask", file("m.json", R"({"flashmask": "x.npy", "causal": true})"));
  expect_error(HasSubstr("4"));
}

TEST_F(UserError, WithJsonTheErrorIsAnObjectToo) {
  set("--dtype", "f64");
  arguments_.push_back("--json");
  const Outcome outcome = flashspan_command(arguments_);
  EXPECT_EQ(outcome.exit_code, 2);
  const auto report = outcome.json();
  ASSERT_TRUE(report.contains("error")) << outcome.out;
  EXPECT_EQ(report["error"]["code"], "bad_argument");
  EXPECT_EQ(report["error"]["argument"], "--dtype");
  EXPECT_EQ(report["error"]["got"], "f64");
  EXPECT_EQ(report["error"]["takes"], "f32, f16 or bf16");
}

TEST(NoDevice, ExitCodeIsThree) {
  const Folder folder;
  auto arguments = attend_arguments(folder, random_problem({1, 1, 1, 4, 4, 16, 16}, Format::f32, 2));
  *(std::find(arguments.begin(), arguments.end(), "--device") + 1) = "cuda:63";
  arguments.insert(arguments.end(), {"--mask", "causal", "--dtype", "f16"});
  const Outcome outcome = flashspan_command(arguments);
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_EQ(outcome.error_lines().size(), 1U);
}

TEST(CommandLine, NothingAndUnknownCommandsAreBadInputAndHelpIsNot) {
  EXPECT_EQ(flashspan_command({}).exit_code, 2);
  const Outcome unknown = flashspan_command({"attned"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_EQ(unknown.error_lines().size(), 1U);
  const Outcome help = flashspan_command({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command : {"attend", "explain", "picture", "compile", "cache", "doctor"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
    EXPECT_EQ(flashspan_command({command, "--help"}).exit_code, 0);
  }
}

TEST(CommandLine, NamedMasksAreListed) {
  const Outcome outcome = flashspan_command({"--list-masks"});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* name : {"causal", "window", "document"}) EXPECT_THAT(outcome.out, HasSubstr(name));
}

}  // namespace
