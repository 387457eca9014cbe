// bundle_test.cpp -- kernels compiled from a manifest into one file, moved, merged, damaged, and used as a layer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "command.hpp"

namespace {

using namespace cli_test;
using testing::HasSubstr;

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
  write_text(folder_ / "first.fsb", text.substr(0, 70));
  const Outcome refused = run_command({"bundle", "ls", folder_ / "first.fsb"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("shorter"));
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
