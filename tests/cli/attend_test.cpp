// attend_test.cpp -- values of `flashspan attend` on the CPU, for masks, layouts and element types.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "attend_case.hpp"
#include "numpy_files.hpp"
#include "oracle/pass_rule.hpp"

namespace {

using namespace cli_test;
using oracle::Format;
using oracle::Index;
using testing::HasSubstr;

TEST(Attend, CausalGroupedHeadsInBinary32) {
  const Folder folder;
  auto problem = random_problem({2, 4, 2, 37, 53, 16, 24}, Format::f32, 1);
  problem.visible = [](Index, Index, Index q, Index k) { return k <= q + 53 - 37; };
  EXPECT_TRUE(attend_agrees(problem, Format::f32, folder, {"--mask", "causal"}));
  EXPECT_TRUE(attend_agrees(problem, Format::f32, folder, {"--mask", "causal", "--deterministic"}));
}

TEST(Attend, WindowInBfloat16ByConversion) {
  const Folder folder;
  auto problem = random_problem({1, 2, 2, 150, 150, 32, 32}, Format::bf16, 10);
  problem.visible = [](Index, Index, Index q, Index k) { return q - 7 <= k && k <= q + 2; };
  EXPECT_TRUE(attend_agrees(problem, Format::bf16, folder, {"--mask", "window(left=7, right=2)", "--dtype", "bf16"}));
}

TEST(Attend, HalfFilesWithHeadsFirst) {
  const Folder folder;
  auto problem = random_problem({2, 3, 1, 65, 40, 8, 8}, Format::f16, 20);
  problem.visible = [](Index, Index, Index q, Index k) { return (q + k) % 3 != 0; };
  EXPECT_TRUE(attend_agrees(problem, Format::f16, folder, {"--mask", "(q + k) % 3 != 0"}, "bhsd", true));
}

TEST(Attend, ExpressionWithATensorAndAScalar) {
  const Folder folder;
  const std::vector<std::int64_t> doc{0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4};
  write_text(folder / "doc.npy", npy_i64({22}, doc));
  auto problem = random_problem({1, 2, 1, 22, 22, 16, 16}, Format::f32, 30);
  problem.visible = [&](Index, Index, Index q, Index k) {
    return doc[static_cast<std::size_t>(q)] == doc[static_cast<std::size_t>(k)] && q - k < 4 && k <= q;
  };
  EXPECT_TRUE(attend_agrees(problem, Format::f32, folder,
                            {"--mask", "(doc[q] == doc[k]) & (q - k < reach) & (q >= k)", "--tensor",
                             "doc=" + (folder / "doc.npy"), "--scalar", "reach=4"}));
}

TEST(Attend, RowsAndKeysThatSeeNothingAreZero) {
  const Folder folder;
  auto problem = random_problem({1, 1, 1, 20, 20, 16, 16}, Format::f32, 40);
  problem.visible = [](Index, Index, Index q, Index k) { return q >= 5 && k < q - 3; };
  ASSERT_TRUE(attend_agrees(problem, Format::f32, folder, {"--mask", "(q >= 5) & (k < q - 3)"}));
  const auto answer = read_answer(folder);
  for (Index q = 0; q < 5; ++q) {
    EXPECT_EQ(answer.lse.at(0, 0, q), -std::numeric_limits<double>::infinity());
    EXPECT_EQ(answer.out.at(0, 0, q, 3), 0);
    EXPECT_EQ(answer.query_gradient.at(0, 0, q, 3), 0);
  }
  EXPECT_EQ(answer.key_gradient.at(0, 0, 19, 0), 0);
  EXPECT_EQ(answer.value_gradient.at(0, 0, 19, 0), 0);
}

TEST(Attend, ScaleAndScoreAreApplied) {
  const Folder folder;
  auto problem = random_problem({1, 2, 2, 30, 30, 16, 16}, Format::f32, 50);
  problem.scale = 0.125;
  problem.visible = [](Index, Index, Index q, Index k) { return k <= q; };
  problem.score = oracle::ScoreFunction{[](double score, Index, Index, Index q, Index k) {
                                          return 2 * score - 0.25 * static_cast<double>(std::abs(q - k));
                                        },
                                        [](double, Index, Index, Index, Index) { return 2.0; }};
  EXPECT_TRUE(attend_agrees(problem, Format::f32, folder,
                            {"--mask", "causal", "--scale", "0.125", "--score", "2 * score - 0.25 * abs(q - k)"}));
}

TEST(Attend, MaskAndScoreEachTakeTheNamesTheyUse) {
  const Folder folder;
  auto problem = random_problem({1, 2, 2, 30, 30, 16, 16}, Format::f32, 52);
  const auto document = [](Index token) { return token / 7; };
  std::vector<std::int64_t> doc(30);
  for (std::size_t token = 0; token < doc.size(); ++token) doc[token] = document(static_cast<Index>(token));
  write_text(folder / "doc.npy", npy_i32({30}, doc));
  write_text(folder / "bias.npy", npy_f32({2}, {0.5, -1.5}));
  problem.visible = [&](Index, Index, Index q, Index k) { return document(q) == document(k); };
  problem.score = oracle::ScoreFunction{[&](double score, Index, Index h, Index q, Index k) {
                                          return score + (h == 0 ? 0.5 : -1.5) * static_cast<double>(q - k) * 0.25 +
                                                 static_cast<double>(document(k));
                                        },
                                        [](double, Index, Index, Index, Index) { return 1.0; }};
  const std::vector<std::string> names = {
      "--tensor", "doc=" + (folder / "doc.npy"), "--tensor", "bias=" + (folder / "bias.npy"), "--scalar", "slope=0.25"};
  for (const char* mask : {"document", "doc[q] == doc[k]"}) {
    std::vector<std::string> arguments = {"--mask", mask, "--score", "score + bias[h] * (q - k) * slope + doc[k]"};
    arguments.insert(arguments.end(), names.begin(), names.end());
    EXPECT_TRUE(attend_agrees(problem, Format::f32, folder, arguments)) << mask;
  }
}

TEST(Attend, SinksAreAppliedInBothLayoutsAndGetAGradient) {
  const Folder folder;
  auto problem = random_problem({2, 4, 2, 30, 20, 16, 16}, Format::f32, 55);
  problem.visible = [](Index, Index, Index q, Index k) { return k <= q - 10; };
  problem.sink = oracle::Tensor(1, 4, 1, 1);
  problem.sink->values = {0.5, -1.25, 3, 0};
  for (const bool as_half : {false, true}) {
    write_text(folder / "sink.npy", as_half ? npy_f16({4}, problem.sink->values) : npy_f32({4}, problem.sink->values));
    for (const char* layout : {"bshd", "bhsd"}) {
      ASSERT_TRUE(
          attend_agrees(problem, Format::f32, folder, {"--mask", "causal", "--sink", folder / "sink.npy"}, layout));
      EXPECT_EQ(read_answer(folder, layout).sink_gradient.values.size(), 4U);
      EXPECT_EQ(read_answer(folder, layout).lse.at(0, 2, 3), 3.0) << "a row that sees nothing else";
    }
  }
}

TEST(Attend, WithoutAGradientOnlyOutAndLseAreWritten) {
  const Folder folder;
  const auto problem = random_problem({1, 1, 1, 9, 9, 16, 16}, Format::f32, 60);
  auto arguments = attend_arguments(folder, problem);
  const auto gradient = std::find(arguments.begin(), arguments.end(), "--do");
  arguments.erase(gradient, gradient + 2);
  arguments.insert(arguments.end(), {"--mask", "causal"});
  const Outcome outcome = flashspan_command(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto arrays = read_npz(folder / "o.npz");
  EXPECT_EQ(arrays.size(), 2U);
  EXPECT_THAT(arrays.at("out").shape, testing::ElementsAre(1, 9, 1, 16));
  EXPECT_THAT(arrays.at("lse").shape, testing::ElementsAre(1, 1, 9));
}

TEST(Attend, ValuesAreRoundedToTheAskedTypeFirst) {
  const Folder folder;
  const auto exact = random_problem({1, 1, 1, 40, 40, 16, 16}, Format::f32, 70);
  auto rounded = exact;
  for (oracle::Tensor* tensor : {&rounded.query, &rounded.key, &rounded.value, &*rounded.out_gradient}) {
    oracle::round_values(*tensor, Format::bf16);
  }
  auto arguments = attend_arguments(folder, exact);
  arguments.insert(arguments.end(), {"--mask", "q >= 0", "--dtype", "bf16"});
  const Outcome outcome = flashspan_command(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(oracle::passes(read_answer(folder), oracle::reference_attention(rounded),
                             oracle::plain_attention(rounded, Format::bf16), Format::bf16));
}

TEST(Attend, InputsMayBeMembersOfAnArchive) {
  const Folder folder;
  const auto problem = random_problem({1, 1, 1, 12, 12, 16, 16}, Format::f32, 80);
  write_text(folder / "all.npz", npz_text({{"q.npy", npy_of(problem.query, "bshd")},
                                           {"k.npy", npy_of(problem.key, "bshd")},
                                           {"v.npy", npy_of(problem.value, "bshd")}},
                                          true));
  const Outcome outcome =
      flashspan_command({"attend", "--mask", "q >= 0", "--device", "cpu", "--q", (folder / "all.npz") + ":q", "--k",
                         (folder / "all.npz") + ":k", "--v", (folder / "all.npz") + ":v", "--out", folder / "o.npz"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto expected = oracle::reference_attention(problem);
  EXPECT_TRUE(oracle::near("out", read_answer(folder).out, expected.out, 1e-5));
}

TEST(Attend, EmptySequencesAreServed) {
  const Folder folder;
  const auto problem = random_problem({1, 2, 1, 3, 0, 16, 16}, Format::f32, 90);
  auto arguments = attend_arguments(folder, problem);
  arguments.insert(arguments.end(), {"--mask", "causal"});
  const Outcome outcome = flashspan_command(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto answer = read_answer(folder);
  EXPECT_TRUE(oracle::all_equal("out", answer.out, 0));
  EXPECT_TRUE(oracle::all_equal("lse", answer.lse, -std::numeric_limits<double>::infinity()));
  EXPECT_TRUE(oracle::all_equal("dq", answer.query_gradient, 0));
}

TEST(Attend, TheJsonReportHasItsFields) {
  const Folder folder;
  auto arguments = attend_arguments(folder, random_problem({2, 4, 2, 10, 12, 16, 24}, Format::f32, 100));
  arguments.insert(arguments.end(), {"--mask", "causal", "--json"});
  const Outcome outcome = flashspan_command(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto report = outcome.json();
  ASSERT_TRUE(report.is_object()) << outcome.out;
  EXPECT_EQ(report["device"], "cpu");
  EXPECT_EQ(report["dtype"], "f32");
  EXPECT_EQ(report["batch"], 2);
  EXPECT_EQ(report["query_heads"], 4);
  EXPECT_EQ(report["kv_heads"], 2);
  EXPECT_EQ(report["q_len"], 10);
  EXPECT_EQ(report["kv_len"], 12);
  EXPECT_EQ(report["head_dim_qk"], 16);
  EXPECT_EQ(report["head_dim_v"], 24);
  EXPECT_EQ(report["out"], folder / "o.npz");
  EXPECT_FALSE(report["mask"].get<std::string>().empty());
  for (const char* direction : {"forward", "backward"}) {
    for (const char* field : {"spec", "key", "outcome", "lowering"}) EXPECT_TRUE(report[direction][field].is_string());
    for (const char* field : {"compile_ms", "registers", "shared_bytes", "spill_bytes", "run_ms"}) {
      EXPECT_TRUE(report[direction][field].is_number()) << direction << " " << field;
    }
  }
}

TEST(AttendOnGpu, ExpressionScoreSinkAndGroupedHeadsInBfloat16) {
  const auto devices = flashspan_command({"doctor", "--json"}).json()["devices"];
  if (devices.dump().find("cuda") == std::string::npos) GTEST_SKIP() << "no CUDA device on this machine";
  const Folder folder;
  std::vector<std::int64_t> doc(300);
  for (std::size_t token = 0; token < doc.size(); ++token) doc[token] = static_cast<std::int64_t>(token / 70);
  write_text(folder / "doc.npy", npy_i32({300}, doc));
  auto problem = random_problem({2, 4, 2, 300, 300, 64, 64}, Format::bf16, 120);
  problem.visible = [&](Index, Index, Index q, Index k) {
    return k <= q && doc[static_cast<std::size_t>(q)] == doc[static_cast<std::size_t>(k)];
  };
  problem.score = oracle::ScoreFunction{
      [](double score, Index, Index, Index q, Index k) { return score - 0.125 * static_cast<double>(q - k); },
      [](double, Index, Index, Index, Index) { return 1.0; }};
  problem.sink = oracle::Tensor(1, 4, 1, 1);
  problem.sink->values = {0.5, -1.25, 3, 0};
  write_text(folder / "sink.npy", npy_f32({4}, problem.sink->values));
  EXPECT_TRUE(attend_agrees(
      problem, Format::bf16, folder,
      {"--mask", "causal_document", "--score", "score - 0.125 * (q - k)", "--tensor", "doc=" + (folder / "doc.npy"),
       "--sink", folder / "sink.npy", "--dtype", "bf16", "--device", "cuda"}));
}

TEST(Attend, ProgressIsPlainLinesInAPipe) {
  const Folder folder;
  auto arguments = attend_arguments(folder, random_problem({1, 1, 1, 4, 4, 16, 16}, Format::f32, 110));
  arguments.insert(arguments.end(), {"--mask", "causal"});
  const Outcome outcome = flashspan_command(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("[1/4] reading arrays\n[2/4] forward\n[3/4] backward\n"));
  EXPECT_EQ(outcome.err.find('\r'), std::string::npos);
  EXPECT_EQ(outcome.err.find('\033'), std::string::npos);
}

}  // namespace
