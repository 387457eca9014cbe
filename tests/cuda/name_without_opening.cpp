// name_without_opening.cpp -- that NVRTC is named without being opened, and by what its file holds. Its own program,
// because nothing before it in the process may open NVRTC.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/cuda/nvrtc_fixture.hpp"

namespace flashspan::cuda {
namespace {

namespace fs = std::filesystem;
using testing::MatchesRegex;

bool nvrtc_is_open() {
  return dlopen("libnvrtc.so.13", RTLD_LAZY | RTLD_NOLOAD) != nullptr ||
         dlopen("libnvrtc.so.12", RTLD_LAZY | RTLD_NOLOAD) != nullptr;
}

/// A folder that comes before all others, with files that have build ids but are no NVRTC.
class NvrtcFiles : public testing::Test {
 protected:
  void SetUp() override {
    if (nvrtc_is_open()) GTEST_SKIP() << "a test before this one has opened NVRTC";
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void put_library(const fs::path& from, const std::string& name = "libnvrtc.so.13") const {
    fs::copy_file(from, folder_ / name, fs::copy_options::overwrite_existing);
  }
  void put_builtins(const std::string& name = "libnvrtc-builtins.so.13.0") const {
    std::ofstream(folder_ / name) << "not read";
  }
  [[nodiscard]] std::optional<std::string> identity(int newest_major = 0) const {
    const auto named = name_nvrtc({root_.string(), {}, newest_major});
    if (!named) return std::nullopt;
    EXPECT_EQ(fs::path(named->path).parent_path(), folder_);
    return named->identity;
  }

  const fs::path root_ = fs::temp_directory_path() / ("flashspan_name_" + std::to_string(getpid()));
  const fs::path folder_ = root_ / "lib64";
};

/// The file of the C library: of another build than this program.
fs::path c_library() {
  Dl_info found{};
  return dladdr(reinterpret_cast<const void*>(&::getpid), &found) != 0 ? found.dli_fname : "";
}

TEST_F(NvrtcFiles, NameTheirBuildAndFollowAFileThatIsReplaced) {
  put_builtins();
  put_library("/proc/self/exe");
  const auto first = identity();
  ASSERT_TRUE(first.has_value()) << "this program has no build id";
  EXPECT_THAT(*first, MatchesRegex("nvrtc 13 build [0-9a-f]+"));
  EXPECT_EQ(identity(), first);
  put_library(c_library());
  const auto second = identity();
  ASSERT_TRUE(second.has_value());
  EXPECT_NE(second, first);
  EXPECT_FALSE(nvrtc_is_open());
}

TEST_F(NvrtcFiles, DoNotTellWithoutTheBuiltinsBesideThem) {
  put_library("/proc/self/exe");
  EXPECT_EQ(identity(), std::nullopt);
  put_builtins("libnvrtc-builtins.so.12.9");
  EXPECT_EQ(identity(), std::nullopt);
  put_builtins();
  EXPECT_TRUE(identity().has_value());
}

TEST_F(NvrtcFiles, DoNotTellIfTheFirstOfThemIsNoLibrary) {
  put_builtins();
  std::ofstream(folder_ / "libnvrtc.so.13") << "not a library";
  EXPECT_EQ(identity(), std::nullopt);
}

TEST_F(NvrtcFiles, OfALaterVersionThanTheDriversArePassedOver) {
  put_builtins();
  put_library("/proc/self/exe");
  put_builtins("libnvrtc-builtins.so.12.9");
  put_library("/proc/self/exe", "libnvrtc.so.12");
  EXPECT_THAT(identity(12).value_or(""), MatchesRegex("nvrtc 12 build .*"));
  EXPECT_THAT(identity(13).value_or(""), MatchesRegex("nvrtc 13 build .*"));
}

// The last one, since it opens NVRTC.
TEST(NvrtcThatIsNamed, IsNotOpenAndIsTheOneThatOpensLater) {
  if (nvrtc_is_open()) GTEST_SKIP() << "a test before this one has opened NVRTC";
  NvrtcOnDemand compiler(machine_search());
  const auto named = compiler.identity();
  if (!named) GTEST_SKIP() << "no NVRTC on this machine: " << named.error().got;
  if (nvrtc_is_open()) GTEST_SKIP() << "NVRTC is where only the loader finds it";
  const auto opened = compiler.get();
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ((*opened)->identity(), *named);
  EXPECT_EQ(*compiler.identity(), *named);
  EXPECT_EQ(*NvrtcOnDemand(machine_search()).identity(), *named) << "of a library that is open already";
}

TEST(NvrtcThatIsNamed, IsTheOneThatOpensWhateverIsLoadedMeanwhile) {
  if (nvrtc_is_open()) GTEST_SKIP() << "a test before this one has opened NVRTC";
  const auto there = name_nvrtc(machine_search());
  if (!there) GTEST_SKIP() << "no NVRTC on this machine";
  const fs::path root = fs::temp_directory_path() / ("flashspan_copy_" + std::to_string(getpid()));
  fs::create_directories(root / "lib64");
  for (const auto& file : fs::directory_iterator(fs::path(there->path).parent_path())) {
    const std::string name = file.path().filename().string();
    if (name == fs::path(there->path).filename() || name.starts_with("libnvrtc-builtins.so.")) {
      fs::copy_file(file.path(), root / "lib64" / name);
    }
  }
  NvrtcSearch search = machine_search();
  search.cuda_home = root.string();
  NvrtcOnDemand compiler(search);
  const auto named = compiler.identity();
  const auto other = open_nvrtc(machine_search());
  const auto opened = compiler.get();
  fs::remove_all(root);
  ASSERT_TRUE(named && other && opened);
  EXPECT_EQ(fs::path((*opened)->library().path).parent_path(), root / "lib64");
  EXPECT_NE((*opened)->library().path, other->path);
  EXPECT_EQ((*opened)->identity(), *named);
}

TEST(NvrtcThatIsNamed, IsTheOneThatOpensIfTheOneThatWasNamedDoesNot) {
  const fs::path root = fs::temp_directory_path() / ("flashspan_named_" + std::to_string(getpid()));
  fs::create_directories(root / "lib64");
  fs::copy_file("/proc/self/exe", root / "lib64" / "libnvrtc.so.13");
  std::ofstream(root / "lib64" / "libnvrtc-builtins.so.13.0") << "not read";
  NvrtcSearch search = machine_search();
  search.cuda_home = root.string();
  NvrtcOnDemand compiler(search);
  const auto named = compiler.identity();
  const auto opened = compiler.get();
  fs::remove_all(root);
  if (!opened) GTEST_SKIP() << "no NVRTC on this machine: " << opened.error().got;
  ASSERT_TRUE(named);
  EXPECT_EQ(*compiler.identity(), (*opened)->identity());
}

}  // namespace
}  // namespace flashspan::cuda
