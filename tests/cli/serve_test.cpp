// serve_test.cpp -- `flashspan serve` and the processes that ask it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include "command.hpp"

namespace {

using namespace cli_test;
using testing::HasSubstr;

/// A service as a process of its own, over a cache of its own.
class Server {
 public:
  explicit Server(const std::vector<std::string>& options) {
    std::string command = std::string("echo $$; exec ") + FLASHSPAN_COMMAND + " serve";
    for (const std::string& option : options) command += " '" + option + "'";
    output_ = ::popen((command + " 2>&1").c_str(), "r");
    std::array<char, 512> line{};
    if (std::fgets(line.data(), line.size(), output_) != nullptr) process_ = std::stoi(line.data());
    if (std::fgets(line.data(), line.size(), output_) != nullptr) first_line_ = line.data();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() { end(SIGKILL); }

  [[nodiscard]] const std::string& first_line() const { return first_line_; }
  /// What it listens at.
  [[nodiscard]] std::string address() const {
    const std::string start = "listening at ";
    if (!first_line_.starts_with(start)) return {};
    return first_line_.substr(start.size(), first_line_.size() - start.size() - 1);
  }
  /// Its exit code, or 128 and the signal's number.
  int end(int signal) {
    if (output_ == nullptr) return -1;
    ::kill(process_, signal);
    std::array<char, 512> line{};
    while (std::fgets(line.data(), line.size(), output_) != nullptr) {  // to its end
    }
    const int status = ::pclose(output_);
    output_ = nullptr;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  std::FILE* output_ = nullptr;
  int process_ = 0;
  std::string first_line_;
};

class Serve : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::mkdtemp(short_.data()), short_.data()); }
  void TearDown() override { std::filesystem::remove_all(short_); }

  [[nodiscard]] std::string socket() const { return "unix:" + short_ + "/s"; }
  /// A forward under "causal" for sm_80, in a fresh cache.
  [[nodiscard]] Outcome compile(Environment environment, const std::string& head_dim = "64") {
    return run_command({"compile", "--arch", "sm_80", "--direction", "forward", "--head-dim", head_dim, "--cache-dir",
                        folder_ / ("client" + std::to_string(clients_++)), "--json"},
                       environment);
  }
  static std::string outcome_of(const Outcome& compiled) {
    return compiled.exit_code == 0 ? compiled.json()["kernels"][0]["outcome"].get<std::string>() : compiled.err;
  }

  Folder folder_;
  std::string short_ = "/tmp/fsp-XXXXXX";  // sockets have short names
  int clients_ = 0;
};

TEST_F(Serve, CompilesForClientsOverItsSocketAndStopsWhenTold) {
  Server server({"--listen", socket(), "--cache-dir", folder_ / "server"});
  if (server.address().empty() && server.first_line().find("nvrtc") != std::string::npos) GTEST_SKIP();
  ASSERT_EQ(server.address(), socket()) << server.first_line();
  const Environment asking{{"FLASHSPAN_SERVICE", socket()}};
  const Outcome first = compile(asking), second = compile(asking), alone = compile({});
  EXPECT_EQ(outcome_of(first), "service") << first.err;
  EXPECT_EQ(outcome_of(second), "service");
  EXPECT_EQ(outcome_of(alone), "built");
  EXPECT_EQ(first.json()["kernels"][0]["key"], alone.json()["kernels"][0]["key"]);
  EXPECT_EQ(run_command({"cache", "ls", "--cache-dir", folder_ / "server", "--json"}).json()["entries"].size(), 1U);
  const Outcome unknown = run_command({"compile", "--arch", "sm_999", "--cache-dir", ""}, asking);
  EXPECT_THAT(unknown.err, HasSubstr("status 409, target: got sm_999; takes an architecture that this server's NVRTC"));
  EXPECT_EQ(server.end(SIGTERM), 0);
  EXPECT_FALSE(std::filesystem::exists(short_ + "/s"));
  const Outcome later = compile(asking);
  EXPECT_EQ(outcome_of(later), "built");
  EXPECT_THAT(later.err, HasSubstr("does not serve, compiling here"));
}

TEST_F(Serve, OverTcpAsksForItsToken) {
  write_text(folder_ / "token", "a secret\n");
  Server server(
      {"--listen", "http://127.0.0.1:0", "--token-file", folder_ / "token", "--cache-dir", folder_ / "server"});
  if (server.address().empty() && server.first_line().find("nvrtc") != std::string::npos) GTEST_SKIP();
  ASSERT_NE(server.address(), "") << server.first_line();
  const Environment asking{{"FLASHSPAN_SERVICE", server.address()}, {"FLASHSPAN_SERVICE_TOKEN", "a secret"}};
  EXPECT_EQ(outcome_of(compile(asking)), "service");
  const Outcome stranger = compile({{"FLASHSPAN_SERVICE", server.address()}, {"FLASHSPAN_SERVICE_TOKEN", "another"}});
  EXPECT_EQ(outcome_of(stranger), "built");
  EXPECT_THAT(stranger.err, HasSubstr("status 401"));
}

TEST_F(Serve, WithASigningKeyClientsTakeItsAnswersOnlySigned) {
  write_text(folder_ / "secret", std::string(32, 'k'));
  write_text(folder_ / "other", std::string(32, 'o'));
  Server server({"--listen", socket(), "--signing-key-file", folder_ / "secret", "--cache-dir", folder_ / "server"});
  if (server.address().empty() && server.first_line().find("nvrtc") != std::string::npos) GTEST_SKIP();
  const auto asking = [&](const std::string& key) {
    return Environment{{"FLASHSPAN_SERVICE", socket()}, {"FLASHSPAN_SIGNING_KEY_FILE", folder_ / key}};
  };
  EXPECT_EQ(outcome_of(compile(asking("secret"))), "service");
  const Outcome other = compile(asking("other"));
  EXPECT_EQ(outcome_of(other), "built");
  EXPECT_THAT(other.err, HasSubstr("signed with another secret"));
  const Outcome missing = compile(asking("missing"));
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("signing key file"));
}

TEST_F(Serve, RefusesAddressesThatItCannotServeInOneLine) {
  for (const std::vector<std::string>& options : {std::vector<std::string>{"--listen", "nowhere"},
                                                  {"--listen", "http://127.0.0.1:0"},
                                                  {"--listen", "unix:" + short_ + "/no/such/folder/s"},
                                                  {"--listen", socket(), "--token-file", "/no/such/file"}}) {
    std::vector<std::string> arguments{"serve"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome refused = run_command(arguments);
    if (refused.exit_code == 3) GTEST_SKIP() << refused.err;
    EXPECT_EQ(refused.exit_code, 2) << options[1];
    EXPECT_EQ(refused.error_lines().size(), 1U) << refused.err;
  }
}

TEST_F(Serve, AClientsSettingsThatDoNotReadAreErrors) {
  const Outcome address = compile({{"FLASHSPAN_SERVICE", "nowhere"}});
  EXPECT_EQ(address.exit_code, 2);
  EXPECT_THAT(address.err, HasSubstr("nowhere"));
  const Outcome seconds = compile({{"FLASHSPAN_SERVICE", socket()}, {"FLASHSPAN_SERVICE_TIMEOUT", "soon"}});
  EXPECT_EQ(seconds.exit_code, 2);
  EXPECT_THAT(seconds.err, HasSubstr("FLASHSPAN_SERVICE_TIMEOUT"));
  const Outcome store = compile({{"FLASHSPAN_SHARED_STORE", "ftp://host"}});
  EXPECT_EQ(store.exit_code, 2);
  EXPECT_THAT(store.err, HasSubstr("shared store"));
}

TEST_F(Serve, WithoutThePlugInAWarningAndACompile) {
  const Outcome alone = compile({{"FLASHSPAN_SERVICE", socket()}, {"FLASHSPAN_NETWORK_PLUGIN", "/no/such/file"}});
  EXPECT_EQ(outcome_of(alone), "built");
  EXPECT_THAT(alone.err, HasSubstr("is not used"));
}

}  // namespace
