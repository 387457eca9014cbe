// bundle_test.cpp -- kernels compiled from a manifest into one file, moved, merged, damaged, and used as a layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "command.hpp"

namespace {

using namespace cli_test;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// One forward kernel in a bundle, from a manifest.
class Bundles : public testing::Test {
 protected:
  void SetUp() override {
    write_text(folder_ / "manifest.json",
               R"({"kernels": [{"mask": "doc[q] == doc[k]", "tensors": {"doc": "i32[1]"}, "direction": "forward",
                                "head_dim": 64}]})");
    const Outcome built = build("manifest.json", "first.fsb");
    if (built.exit_code == 3) GTEST_SKIP() << built.err;
    ASSERT_EQ(built.exit_code, 0) << built.err;
    key_ = built.json()["entries"][0]["key"].get<std::string>();
  }

  [[nodiscard]] Outcome build(const std::string& manifest, const std::string& bundle) const {
    return run_command({"bundle", "build", folder_ / manifest, "--arch", "sm_80", "-o", folder_ / bundle, "--json"});
  }
  [[nodiscard]] std::vector<std::string> keys_in(const std::string& bundle) const {
    std::vector<std::string> keys;
    const auto listed = run_command({"bundle", "ls", folder_ / bundle, "--json"}).json();
    for (const auto& entry : listed["entries"]) keys.push_back(entry["key"].get<std::string>());
    return keys;
  }

  Folder folder_;
  std::string key_;
};

TEST_F(Bundles, HoldWhatTheManifestSaysAndTheSameEveryTime) {
  EXPECT_THAT(keys_in("first.fsb"), testing::ElementsAre(key_));
  const auto entry = run_command({"bundle", "ls", folder_ / "first.fsb", "--json"}).json()["entries"][0];
  EXPECT_THAT(entry["spec"].get<std::string>(), HasSubstr("forward sm_80 bf16 d64"));
  EXPECT_TRUE(entry["valid"].get<bool>());
  EXPECT_EQ(run_command({"bundle", "verify", folder_ / "first.fsb"}).exit_code, 0);
}

TEST_F(Bundles, ServeAsALayerWithoutACompileAndWithoutACopy) {
  std::filesystem::rename(folder_ / "first.fsb", folder_ / "moved.fsb");
  const std::vector<std::string> compile{
      "compile", "--mask",      "doc[q] == doc[k]", "--tensor", "doc=" + (folder_ / "doc.npy"),
      "--arch",  "sm_80",       "--direction",      "forward",  "--head-dim",
      "64",      "--cache-dir", folder_ / "cache",  "--json"};
  // An array of two numbers, as NumPy writes it.
  const std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }";
  std::string text("\x93NUMPY\x01\x00\x76\x00", 10);
  text += header + std::string(117 - header.size(), ' ') + "\n" + std::string(8, '\0');
  write_text(folder_ / "doc.npy", text);
  const Outcome found =
      run_command(compile, {{"FLASHSPAN_CACHE_PATH", (folder_ / "missing") + ":" + (folder_ / "moved.fsb")}});
  ASSERT_EQ(found.exit_code, 0) << found.err;
  EXPECT_EQ(found.json()["kernels"][0]["outcome"], "layer");
  EXPECT_EQ(found.json()["kernels"][0]["key"], key_);
  EXPECT_THAT(found.err, HasSubstr("missing"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache"));
}

TEST_F(Bundles, TravelThroughFoldersAndCachesUnchanged) {
  const std::string first = folder_ / "first.fsb", again = folder_ / "again.fsb", cache = folder_ / "cache";
  ASSERT_EQ(run_command({"bundle", "export", first, folder_ / "folder"}).exit_code, 0);
  EXPECT_EQ(run_command({"cache", "verify", "--cache-dir", folder_ / "folder"}).exit_code, 0);
  const Outcome same = run_command({"cache", "diff", folder_ / "folder", first});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_EQ(same.out, "");
  ASSERT_EQ(run_command({"cache", "import", first, "--cache-dir", cache}).exit_code, 0);
  ASSERT_EQ(run_command({"cache", "export", again, key_.substr(0, 8), "--cache-dir", cache}).exit_code, 0);
  EXPECT_TRUE(read_text(again) == read_text(first));
  EXPECT_EQ(run_command({"cache", "export", again, "nosuchkey", "--cache-dir", cache}).exit_code, 2);
  ASSERT_EQ(run_command({"bundle", "merge", first, again, "-o", folder_ / "merged.fsb"}).exit_code, 0);
  EXPECT_TRUE(read_text(folder_ / "merged.fsb") == read_text(first));
  ASSERT_EQ(run_command({"cache", "prune", "--max-size", "0", "--cache-dir", cache}).exit_code, 0);
  const auto difference = run_command({"cache", "diff", cache, first, "--json"}).json();
  EXPECT_EQ(difference["only_left"].size(), 0U);
  ASSERT_EQ(difference["only_right"].size(), 1U);
  EXPECT_EQ(difference["only_right"][0]["key"], key_);
}

TEST_F(Bundles, ADamagedOneIsFoundAndItsEntryNotTaken) {
  std::string text = read_text(folder_ / "first.fsb");
  text[text.size() - 40] ^= 1;
  write_text(folder_ / "first.fsb", text);
  const Outcome verified = run_command({"bundle", "verify", folder_ / "first.fsb", "--json"});
  EXPECT_EQ(verified.exit_code, 2);
  EXPECT_EQ(verified.json()["damaged"], 1);
  EXPECT_EQ(run_command({"cache", "import", folder_ / "first.fsb", "--cache-dir", folder_ / "c"}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "c"));
  const Outcome exported = run_command({"bundle", "export", folder_ / "first.fsb", folder_ / "e"});
  EXPECT_EQ(exported.exit_code, 2);
  EXPECT_THAT(exported.err, HasSubstr("1 damaged entries"));
  EXPECT_THAT(exported.out, HasSubstr("wrote 0 entries"));
  const Outcome merged = run_command({"bundle", "merge", folder_ / "first.fsb", "-o", folder_ / "m.fsb", "--json"});
  EXPECT_EQ(merged.exit_code, 2);
  EXPECT_FALSE(merged.json()["entries"][0]["valid"].get<bool>());
  EXPECT_THAT(keys_in("m.fsb"), testing::IsEmpty());
  write_text(folder_ / "first.fsb", text.substr(0, 70));
  const Outcome refused = run_command({"bundle", "ls", folder_ / "first.fsb"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("shorter"));
}

TEST_F(Bundles, ADamagedEntryThatAnotherBundleHasWholeIsNotMissed) {
  std::string text = read_text(folder_ / "first.fsb");
  text[text.size() - 40] ^= 1;
  write_text(folder_ / "damaged.fsb", text);
  for (const std::string merged : {"damaged.fsb first.fsb", "first.fsb damaged.fsb"}) {
    const std::size_t space = merged.find(' ');
    const Outcome outcome = run_command({"bundle", "merge", folder_ / merged.substr(0, space),
                                         folder_ / merged.substr(space + 1), "-o", folder_ / "merged.fsb"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(read_text(folder_ / "merged.fsb") == read_text(folder_ / "first.fsb"));
  }
}

TEST_F(Bundles, ACacheWithADamagedEntryIsExportedWithoutItAndTheCommandSaysSo) {
  const std::string cache = folder_ / "cache";
  ASSERT_EQ(run_command({"bundle", "export", folder_ / "first.fsb", cache}).exit_code, 0);
  for (const auto& file : std::filesystem::recursive_directory_iterator(cache)) {
    if (file.is_regular_file()) std::filesystem::resize_file(file.path(), file.file_size() - 1);
  }
  const Outcome outcome = run_command({"cache", "export", folder_ / "second.fsb", "--cache-dir", cache});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("1 damaged entries"));
  EXPECT_THAT(keys_in("second.fsb"), testing::IsEmpty());
}

/// A bundle of one kernel, built with results of tuning.
class TunedBundles : public testing::Test {
 protected:
  void SetUp() override {
    write_text(folder_ / "manifest.json",
               R"({"kernels": [{"mask": "causal", "direction": "forward", "head_dim": 64}]})");
    write_text(folder_ / "tuned.jsonl", record_of("64") + record_of("128"));
    write_text(folder_ / "other.jsonl", record_of("128"));
  }

  /// What is printed of a causal forward of 128 x 128, where bundles are layers of the cache.
  [[nodiscard]] nlohmann::json explained(const std::string& head_dim, const std::string& layers) const {
    const Outcome outcome =
        run_command({"explain", "--mask", "causal", "--arch", "sm_80", "--dtype", "bf16", "--head-dim", head_dim,
                     "--q-len", "128", "--kv-len", "128", "--batch", "1", "--heads", "1", "--json"},
                    {{"FLASHSPAN_CACHE_DIR", folder_ / "none"}, {"FLASHSPAN_CACHE_PATH", layers}});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json()["directions"][0];
  }
  /// A line of a tuning file: 64 x 32 was the fastest for that kernel.
  [[nodiscard]] std::string record_of(const std::string& head_dim) const {
    nlohmann::json fields = nlohmann::json::object();
    std::istringstream lines(explained(head_dim, "")["spec"].get<std::string>());
    for (std::string line; std::getline(lines, line);) {
      const std::size_t middle = line.find(" = ");
      if (middle != std::string::npos) fields[line.substr(0, middle)] = line.substr(middle + 3);
    }
    const nlohmann::json tile{{"block_m", 64}, {"block_n", 32}, {"num_warps", 4}, {"num_stages", 1}};
    for (const auto& [name, value] : tile.items()) fields[name] = value.dump();
    const int dim = std::stoi(head_dim);
    const nlohmann::json shape{{"batch", 1},    {"query_heads", 1},   {"kv_heads", 1},    {"q_len", 128},
                               {"kv_len", 128}, {"head_dim_qk", dim}, {"head_dim_v", dim}};
    const nlohmann::json record{{"spec", fields},
                                {"shape", shape},
                                {"device", "NVIDIA A100"},
                                {"processors", 108},
                                {"compiler", "nvrtc 13.0"},
                                {"driver", "13.0"},
                                {"milliseconds", 1.0},
                                {"default_tile", tile},
                                {"default_milliseconds", 1.5},
                                {"candidates", 9},
                                {"date", "2026-01-02T03:04:05Z"}};
    return record.dump() + "\n";
  }
  [[nodiscard]] Outcome build(const std::string& tuning) const {
    return run_command({"bundle", "build", folder_ / "manifest.json", "--arch", "sm_80", "--tuning", folder_ / tuning,
                        "-o", folder_ / "kernels.fsb", "--json"});
  }

  Folder folder_;
};

TEST_F(TunedBundles, HoldTheKernelOfEveryTileThatTheyMakeCallsTake) {
  const Outcome built = build("tuned.jsonl");
  if (built.exit_code == 3) GTEST_SKIP() << built.err;
  ASSERT_EQ(built.exit_code, 0) << built.err;
  std::vector<std::string> specs;
  const auto report = built.json();
  for (const auto& entry : report["entries"]) specs.push_back(entry["spec"].get<std::string>());
  EXPECT_THAT(specs, testing::UnorderedElementsAre(HasSubstr("bf16 d64 64x32"),
                                                   AllOf(HasSubstr("bf16 d64"), Not(HasSubstr("64x32"))),
                                                   HasSubstr("tuned tiles")));
  const std::string bundle = folder_ / "kernels.fsb";
  EXPECT_THAT(explained("64", bundle)["tile_reason"].get<std::string>(),
              HasSubstr("tuned for this class of shapes on NVIDIA A100"));
  EXPECT_EQ(explained("128", bundle)["tile_reason"],
            "no result of tuning for this class of shapes, nor for another: the built-in table");
  ASSERT_EQ(run_command({"cache", "import", bundle, "--cache-dir", folder_ / "cache"}).exit_code, 0);
  const auto records = run_command({"tune", "ls", folder_ / "cache/tuning.jsonl", "--json"}).json()["records"];
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0]["device"], "NVIDIA A100");
}

TEST_F(TunedBundles, AreNotBuiltFromResultsOfOtherKernels) {
  const Outcome built = build("other.jsonl");
  EXPECT_EQ(built.exit_code, 2);
  EXPECT_THAT(built.err, HasSubstr("--tuning: got 1 results of other kernels"));
  EXPECT_EQ(build("none.jsonl").exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "kernels.fsb"));
}

TEST(Manifest, AFieldThatIsWrongIsNamedBeforeAnythingIsCompiled) {
  const Folder folder;
  const auto message_of = [&](const std::string& kernel) {
    write_text(folder / "manifest.json", R"({"kernels": [{"mask": "causal"}, )" + kernel + "]}");
    const Outcome refused =
        run_command({"bundle", "build", folder / "manifest.json", "--arch", "sm_80", "-o", folder / "kernels.fsb"});
    EXPECT_EQ(refused.exit_code, 2) << kernel;
    EXPECT_FALSE(std::filesystem::exists(folder / "kernels.fsb"));
    return refused.err;
  };
  EXPECT_THAT(message_of(R"({})"), HasSubstr("kernels[1].mask"));
  EXPECT_THAT(message_of(R"({"mask": "causal", "dtype": "f64"})"), HasSubstr("kernels[1].dtype"));
  EXPECT_THAT(message_of(R"({"mask": "causal", "head_dim": "wide"})"), HasSubstr("kernels[1].head_dim"));
  EXPECT_THAT(message_of(R"({"mask": "causal", "direction": "sideways"})"), HasSubstr("kernels[1].direction"));
  EXPECT_THAT(message_of(R"({"mask": "causal", "few_rows": 1})"), HasSubstr("kernels[1].few_rows"));
  EXPECT_THAT(message_of(R"({"mask": "causal", "color": "red"})"), HasSubstr("kernels[1].color"));
  EXPECT_THAT(message_of(R"({"mask": "t[q] > 0", "tensors": {"t": "i32"}})"), HasSubstr("kernels[1].tensors.t"));
  EXPECT_THAT(message_of(R"({"mask": "q < n", "scalars": {"n": 3}})"), HasSubstr("kernels[1].scalars.n"));
  EXPECT_THAT(message_of(R"({"mask": "q >= "})"), HasSubstr("^"));
}

}  // namespace
