// Which folder the cache uses, whatever the environment and the file system are like; what other settings are refused
// for.
#include "runtime/api/settings.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "runtime/api/backends.hpp"
#include "runtime/api/network_plugin.hpp"
#include "tests/runtime/private_folder.hpp"

namespace flashspan::testing {
namespace {

using api::Settings;
using ::testing::HasSubstr;
using ::testing::Not;

class CacheFolder : public ::testing::Test {
 protected:
  CacheFolder() { variables_["TMPDIR"] = (folder_.path() / "temp").string(); }
  void SetUp() override { std::filesystem::create_directory(folder_.path() / "temp"); }

  [[nodiscard]] Settings settings() const {
    return api::read_settings([this](const char* name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      if (found == variables_.end()) return std::nullopt;
      return found->second;
    });
  }
  [[nodiscard]] std::optional<std::filesystem::path> chosen() const {
    return api::cache_folder(settings(), std::nullopt);
  }
  [[nodiscard]] std::filesystem::path private_temp() const {
    return folder_.path() / "temp" / ("flashspan-" + std::to_string(geteuid()));
  }

  PrivateFolder folder_;
  std::map<std::string, std::string> variables_;
};

TEST_F(CacheFolder, TheOwnVariableComesBeforeXdgBeforeHome) {
  variables_["HOME"] = (folder_.path() / "home").string();
  EXPECT_EQ(chosen(), folder_.path() / "home" / ".cache" / "flashspan");
  variables_["XDG_CACHE_HOME"] = (folder_.path() / "xdg").string();
  EXPECT_EQ(chosen(), folder_.path() / "xdg" / "flashspan");
  variables_["FLASHSPAN_CACHE_DIR"] = (folder_.path() / "own").string();
  EXPECT_EQ(chosen(), folder_.path() / "own");
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "home")) << "choosing a folder does not make it";
}

TEST_F(CacheFolder, TheCallersChoiceComesBeforeAllAndNothingMeansMemory) {
  variables_["FLASHSPAN_CACHE_DIR"] = "/somewhere";
  EXPECT_EQ(api::cache_folder(settings(), "/chosen"), "/chosen");
  EXPECT_EQ(api::cache_folder(settings(), ""), std::nullopt);
}

TEST_F(CacheFolder, WithoutHomeItIsAPrivateTempFolder) {
  EXPECT_EQ(chosen(), private_temp());
  struct stat made{};
  ASSERT_EQ(lstat(private_temp().c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777, 0700U);
  EXPECT_EQ(chosen(), private_temp()) << "a second process takes the same folder";
}

TEST_F(CacheFolder, EmptyAndRelativeVariablesCountAsNotSet) {
  variables_["HOME"] = "";
  variables_["XDG_CACHE_HOME"] = "relative/cache";
  variables_["FLASHSPAN_CACHE_DIR"] = "";
  EXPECT_EQ(chosen(), private_temp());
}

TEST_F(CacheFolder, AHomeThatIsNoFolderIsPassedOver) {
  std::ofstream(folder_.path() / "a-file") << "not a folder";
  variables_["HOME"] = (folder_.path() / "a-file").string();
  EXPECT_EQ(chosen(), private_temp());
}

TEST_F(CacheFolder, AHomeThatCannotBeWrittenToIsPassedOver) {
  if (geteuid() == 0) GTEST_SKIP() << "root can write everywhere";
  std::filesystem::create_directory(folder_.path() / "home");
  chmod((folder_.path() / "home").c_str(), 0500);
  variables_["HOME"] = (folder_.path() / "home").string();
  EXPECT_EQ(chosen(), private_temp());
}

TEST_F(CacheFolder, ATempFolderThatOthersCanEnterIsNotUsed) {
  std::filesystem::create_directory(private_temp());
  chmod(private_temp().c_str(), 0755);
  EXPECT_EQ(chosen(), std::nullopt);
}

TEST_F(CacheFolder, ATempFolderThatIsALinkIsNotUsed) {
  std::filesystem::create_directory(folder_.path() / "elsewhere");
  chmod((folder_.path() / "elsewhere").c_str(), 0700);
  std::filesystem::create_directory_symlink(folder_.path() / "elsewhere", private_temp());
  EXPECT_EQ(chosen(), std::nullopt);
}

TEST_F(CacheFolder, ATempFolderOfAnotherUserIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a folder away";
  std::filesystem::create_directory(private_temp());
  chmod(private_temp().c_str(), 0700);
  ASSERT_EQ(chown(private_temp().c_str(), 65534, 65534), 0);
  EXPECT_EQ(chosen(), std::nullopt);
}

TEST_F(CacheFolder, SourcesThatDoNotCompileGoToTheDumpFolderFirst) {
  variables_["FLASHSPAN_DUMP_DIR"] = "/dumps";
  const auto folders = api::dump_folders(settings(), "/cache");
  ASSERT_EQ(folders.size(), 3U);
  EXPECT_EQ(folders[0], "/dumps");
  EXPECT_EQ(folders[1], "/cache/failed");
  EXPECT_EQ(folders[2], private_temp() / "failed");
}

TEST_F(CacheFolder, ToolkitFoldersReachTheSearchForNvrtc) {
  variables_["CUDA_PATH"] = "/second";
  EXPECT_EQ(api::nvrtc_search(settings()).cuda_home, "/second");
  variables_["CUDA_HOME"] = "/first";
  EXPECT_EQ(api::nvrtc_search(settings()).cuda_home, "/first");
}

TEST_F(CacheFolder, TheNumberOfLoadedKernelsIsAWholeNumberOrAnErrorThatNamesTheVariable) {
  EXPECT_EQ(api::max_loaded_kernels(settings(), 7).value(), 7U);
  variables_["FLASHSPAN_MAX_LOADED_KERNELS"] = "64";
  EXPECT_EQ(api::max_loaded_kernels(settings(), 7).value(), 64U);
  for (const char* bad : {"0", "-1", "many", "64k", " 64", "99999999999999999999999"}) {
    variables_["FLASHSPAN_MAX_LOADED_KERNELS"] = bad;
    const auto refused = api::max_loaded_kernels(settings(), 7);
    ASSERT_FALSE(refused.has_value()) << bad;
    EXPECT_EQ(refused.error().code, ErrorCode::bad_argument);
    EXPECT_EQ(refused.error().argument, "FLASHSPAN_MAX_LOADED_KERNELS");
    EXPECT_EQ(refused.error().got, bad);
  }
}

TEST_F(CacheFolder, LayersStandInTheOrderOfTheirPathAndTheCallersComeInPlaceOfTheEnvironments) {
  using ::testing::ElementsAre;
  EXPECT_THAT(api::cache_layers(settings(), std::nullopt), ElementsAre());
  variables_["FLASHSPAN_CACHE_PATH"] = "/first:/second/kernels.fsb::/third";
  EXPECT_THAT(api::cache_layers(settings(), std::nullopt), ElementsAre("/first", "/second/kernels.fsb", "/third"));
  EXPECT_THAT(api::cache_layers(settings(), "/other"), ElementsAre("/other"));
  EXPECT_THAT(api::cache_layers(settings(), ""), ElementsAre());
}

TEST_F(CacheFolder, KernelsOfAnotherNvrtcAreAcceptedBySayingSo) {
  EXPECT_FALSE(*api::accepts_other_nvrtc(settings()));
  variables_["FLASHSPAN_ACCEPT_OTHER_NVRTC"] = "1";
  EXPECT_TRUE(*api::accepts_other_nvrtc(settings()));
  variables_["FLASHSPAN_ACCEPT_OTHER_NVRTC"] = "yes";
  ASSERT_FALSE(api::accepts_other_nvrtc(settings()).has_value());
  EXPECT_EQ(api::accepts_other_nvrtc(settings()).error().argument, "FLASHSPAN_ACCEPT_OTHER_NVRTC");
}

TEST_F(CacheFolder, AMissingCpuPluginIsNamedWithEveryPlaceThatWasTried) {
  variables_["FLASHSPAN_CPU_PLUGIN"] = "/no/such/plugin.so";
  const auto backend = api::open_cpu_backend(settings());
  ASSERT_FALSE(backend.has_value());
  EXPECT_EQ(backend.error().code, ErrorCode::missing_component);
  EXPECT_NE(backend.error().detail.find("/no/such/plugin.so"), std::string::npos);
  EXPECT_NE(backend.error().takes.find("apt-get install"), std::string::npos);
}

TEST_F(CacheFolder, ASigningKeyThatIsNoFileOfASecretIsAnErrorThatNamesIt) {
  std::ofstream(folder_.path() / "short") << "fifteen bytes..";
  for (const auto& [name, code] :
       {std::pair{"", ErrorCode::io_error}, {"absent", ErrorCode::io_error}, {"short", ErrorCode::bad_argument}}) {
    const std::string path = (folder_.path() / name).string();
    variables_["FLASHSPAN_SIGNING_KEY_FILE"] = path;
    const auto refused = api::open_signer({}, settings());
    ASSERT_FALSE(refused.has_value()) << path;
    EXPECT_EQ(refused.error().code, code) << path;
    EXPECT_EQ(refused.error().argument, "signing key file");
    EXPECT_THAT(refused.error().got, HasSubstr(path));
  }
}

TEST_F(CacheFolder, AMissingNetworkPluginIsAWarningThatShowsNoPassword) {
  variables_["FLASHSPAN_NETWORK_PLUGIN"] = "/no/such/plugin.so";
  variables_["FLASHSPAN_SERVICE"] = "http://me:secret@farm.example:8080";
  variables_["FLASHSPAN_SHARED_STORE"] = "redis://me:secret@cache.example";
  std::string lines;
  const LogSink log = [&](LogLevel level, std::string_view line) {
    EXPECT_EQ(level, LogLevel::warning);
    lines.append(line).append("\n");
  };
  const auto service = api::open_service({}, settings(), DeviceKind::cuda, log);
  ASSERT_TRUE(service.has_value()) << service.error().message();
  EXPECT_EQ(*service, nullptr);
  const auto store = api::open_shared_store({}, settings(), log);
  ASSERT_TRUE(store.has_value()) << store.error().message();
  EXPECT_EQ(*store, nullptr);
  EXPECT_THAT(lines, HasSubstr("the compile service at http://...@farm.example:8080 is not used"));
  EXPECT_THAT(lines, HasSubstr("the shared store is not used"));
  EXPECT_THAT(lines, Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace flashspan::testing
