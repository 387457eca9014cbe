// Where libnvrtc is looked for, and what is said when none is usable.
#include "runtime/cuda/nvrtc_library.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/cuda/nvrtc_fixture.hpp"

namespace flashspan::cuda {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class NvrtcCandidates : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root_); }
  void TearDown() override { fs::remove_all(root_); }

  /// An empty file below the test's folder; returns its path.
  std::string file(const std::string& name) const {
    const fs::path path = root_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "not a library";
    return path.string();
  }
  std::string folder(const std::string& name) const { return (root_ / name).string(); }

  /// Position of `path` among the candidates; the number of candidates if it is not one.
  static std::ptrdiff_t position(const NvrtcSearch& search, const std::string& path) {
    const auto candidates = nvrtc_candidates(search);
    return std::find(candidates.begin(), candidates.end(), path) - candidates.begin();
  }
  static bool found(const NvrtcSearch& search, const std::string& path) {
    return position(search, path) < static_cast<std::ptrdiff_t>(nvrtc_candidates(search).size());
  }

 private:
  fs::path root_ = fs::temp_directory_path() / ("flashspan_nvrtc_" + std::to_string(getpid()));
};

TEST_F(NvrtcCandidates, StartWithCudaHome) {
  const std::string library = file("toolkit/lib64/libnvrtc.so.13");
  EXPECT_EQ(position({folder("toolkit"), {}, 0}, library), 0);
}

TEST_F(NvrtcCandidates, IncludeTheTargetsFolderOfAToolkit) {
  const std::string library = file("toolkit/targets/x86_64-linux/lib/libnvrtc.so.12");
  EXPECT_TRUE(found({folder("toolkit"), {}, 0}, library));
}

TEST_F(NvrtcCandidates, PreferTheNewerMajorVersionInOneFolder) {
  const std::string older = file("toolkit/lib64/libnvrtc.so.12");
  const std::string newer = file("toolkit/lib64/libnvrtc.so.13");
  const NvrtcSearch search{folder("toolkit"), {}, 0};
  EXPECT_LT(position(search, newer), position(search, older));
}

TEST_F(NvrtcCandidates, IncludeTheWheelsOfASitePackagesFolder) {
  const std::string of_12 = file("site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const std::string of_13 = file("site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  const NvrtcSearch search{"", {folder("site-packages")}, 0};
  EXPECT_TRUE(found(search, of_12));
  EXPECT_TRUE(found(search, of_13));
}

TEST_F(NvrtcCandidates, IncludeTheWheelsOfAPythonPrefix) {
  const std::string library = file("venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  EXPECT_TRUE(found({"", {folder("venv")}, 0}, library));
}

TEST_F(NvrtcCandidates, IncludeAnExtraFolderItself) {
  const std::string library = file("plain/libnvrtc.so.13");
  EXPECT_TRUE(found({"", {folder("plain")}, 0}, library));
}

TEST_F(NvrtcCandidates, EndWithTheLoadersOwnPath) {
  const auto candidates = nvrtc_candidates({"", {}, 0});
  ASSERT_GE(candidates.size(), 2u);
  EXPECT_EQ(candidates[candidates.size() - 2], "libnvrtc.so.13");
  EXPECT_EQ(candidates.back(), "libnvrtc.so.12");
}

TEST_F(NvrtcCandidates, NameEveryFileOnce) {
  const std::string library = file("toolkit/lib64/libnvrtc.so.13");
  auto candidates = nvrtc_candidates({folder("toolkit"), {folder("toolkit/lib64")}, 0});
  EXPECT_EQ(std::count(candidates.begin(), candidates.end(), library), 1);
}

TEST_F(NvrtcCandidates, SkipFoldersThatAreNotThere) {
  EXPECT_EQ(nvrtc_candidates({folder("nowhere"), {folder("nowhere")}, 0}), nvrtc_candidates({"", {}, 0}));
}

TEST_F(NvrtcCandidates, ThatAreNoLibraryAreNamedWithTheReason) {
  const std::string library = file("toolkit/lib64/libnvrtc.so.13");
  // No version is old enough, so nothing on this machine is usable either.
  const auto opened = open_nvrtc({folder("toolkit"), {}, 1});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::missing_component);
  EXPECT_EQ(opened.error().argument, "nvrtc");
  EXPECT_THAT(opened.error().detail, HasSubstr(library));
  EXPECT_THAT(opened.error().takes, HasSubstr("pip install nvidia-cuda-nvrtc"));
}

using NvrtcLibraryOfThisMachine = WithNvrtc;

TEST_F(NvrtcLibraryOfThisMachine, HasAPathAVersionAndArchitectures) {
  const NvrtcLibrary& library = compiler().library();
  EXPECT_TRUE(fs::path(library.path).is_absolute()) << library.path;
  EXPECT_GE(library.major, 12);
  EXPECT_TRUE(std::is_sorted(library.archs.begin(), library.archs.end()));
  EXPECT_TRUE(std::binary_search(library.archs.begin(), library.archs.end(), 90));
}

TEST_F(NvrtcLibraryOfThisMachine, IsIdentifiedByItsBuildWithoutItsPath) {
  const NvrtcLibrary& library = compiler().library();
  EXPECT_EQ(library.build_id.size(), 40u) << "a SHA-1 build id";
  EXPECT_EQ(compiler().identity(), "nvrtc " + std::to_string(library.major) + " build " + library.build_id);
  EXPECT_EQ(compiler().description(), "nvrtc " + std::to_string(library.major) + "." + std::to_string(library.minor) +
                                          " build " + library.build_id);
}

TEST_F(NvrtcLibraryOfThisMachine, IsPreferredWhenItIsLoadedAlready) {
  const auto again = open_nvrtc({"/nowhere", {}, 0});
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->path, compiler().library().path);
}

TEST_F(NvrtcLibraryOfThisMachine, IsRefusedForADriverOfAnOlderMajorVersion) {
  NvrtcSearch search = machine_search();
  search.newest_major = 11;
  const auto opened = open_nvrtc(search);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().detail, HasSubstr("whose machine code the driver (CUDA 11) does not load"));
}

}  // namespace
}  // namespace flashspan::cuda
