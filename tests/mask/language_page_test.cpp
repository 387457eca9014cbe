// language_page_test.cpp -- every example in docs/mask-language.md means what the page says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "codegen/mask/named_masks.hpp"
#include "codegen/mask/parser.hpp"

namespace flashspan::mask::test {
namespace {

using ::testing::HasSubstr;

std::string page() {
  std::ifstream file(FLASHSPAN_SOURCE_DIR "/docs/mask-language.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Contents of the fenced blocks that are opened by "```" and `kind`.
std::vector<std::string> blocks(const std::string& kind) {
  std::vector<std::string> result;
  std::istringstream lines(page());
  std::string line;
  bool inside = false;
  while (std::getline(lines, line)) {
    if (line.starts_with("```")) {
      inside = !inside && line == "```" + kind;
      if (inside) result.emplace_back();
    } else if (inside) {
      result.back() += line + "\n";
    }
  }
  return result;
}

// Lines of those blocks, without comments and blanks behind the expression.
std::vector<std::string> examples(const std::string& kind) {
  std::vector<std::string> result;
  for (const std::string& block : blocks(kind)) {
    std::istringstream lines(block);
    std::string line;
    while (std::getline(lines, line)) {
      const std::string expression = line.substr(0, line.find('#'));
      const std::size_t end = expression.find_last_not_of(' ');
      if (end != std::string::npos) result.push_back(expression.substr(0, end + 1));
    }
  }
  return result;
}

Program declarations() {
  const auto found = examples("text declarations");
  EXPECT_EQ(found.size(), 1U);
  auto program = Program::from_signature(found.at(0) + " True");
  EXPECT_TRUE(program) << program.error().message();
  return program ? *std::move(program) : Program();
}

TEST(LanguagePage, MaskAndScoreExamplesParse) {
  const Program declared = declarations();
  const auto masks = examples("python mask");
  const auto scores = examples("python score");
  EXPECT_GE(masks.size(), 8U);
  EXPECT_GE(scores.size(), 4U);
  for (const std::string& text : masks) {
    const auto program = parse(text, ProgramKind::mask, declared.scalars(), declared.tensors());
    EXPECT_TRUE(program) << (program ? "" : program.error().message());
  }
  for (const std::string& text : scores) {
    const auto program = parse(text, ProgramKind::score, declared.scalars(), declared.tensors());
    EXPECT_TRUE(program) << (program ? "" : program.error().message());
  }
}

TEST(LanguagePage, RefusedExamplesGiveTheMessageShown) {
  const Program declared = declarations();
  const auto refused = blocks("text refused");
  EXPECT_GE(refused.size(), 3U);
  for (const std::string& block : refused) {
    const std::size_t end = block.find('\n');
    const auto program = parse(block.substr(0, end), ProgramKind::mask, declared.scalars(), declared.tensors());
    ASSERT_FALSE(program) << block;
    EXPECT_EQ(program.error().message() + "\n", block.substr(end + 1));
  }
}

TEST(LanguagePage, ListsEveryNamedMaskWithItsArgumentsAndTensors) {
  const std::string text = page();
  for (const NamedMask& mask : named_masks()) {
    const std::size_t row = text.find("\n| `" + mask.name + "` |");
    ASSERT_NE(row, std::string::npos) << mask.name;
    const std::string line = text.substr(row + 1, text.find('\n', row + 1) - row - 1);
    for (const NamedMaskArgument& argument : mask.arguments) EXPECT_THAT(line, HasSubstr("`" + argument.name + "`"));
    for (const TensorDeclaration& tensor : mask.tensors) EXPECT_THAT(line, HasSubstr("`" + tensor.name + "`"));
  }
}

TEST(LanguagePage, NamesEveryVariable) {
  const std::string text = page();
  for (int number = 0; number < variable_count; ++number) {
    EXPECT_THAT(text, HasSubstr(std::string("`") + to_string(static_cast<Variable>(number)) + "`"));
  }
}

}  // namespace
}  // namespace flashspan::mask::test
