// Client and server over a Unix socket and over TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <latch>
#include <thread>

#include "network/http_client.hpp"
#include "network/http_server.hpp"
#include "tests/network/scratch_folder.hpp"

namespace flashspan::network {
namespace {

using ::testing::HasSubstr;

constexpr double patience = 30;

class Http : public ::testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] ListenOptions options() const {
    ListenOptions options;
    options.address = GetParam() ? "unix:" + (folder_ / "socket") : "http://127.0.0.1:0";
    options.token = GetParam() ? "" : "a secret";
    options.largest_body = 100'000;
    return options;
  }
  [[nodiscard]] std::unique_ptr<HttpServer> serve(HttpHandler handler) const {
    auto server = open_http_server(options(), std::move(handler));
    EXPECT_TRUE(server.has_value()) << server.error().message();
    return *std::move(server);
  }
  [[nodiscard]] std::unique_ptr<HttpClient> client_of(const HttpServer& server) const {
    return *open_http_client(server.address(), options().token);
  }

  ScratchFolder folder_;
};

HttpAnswer echo(const HttpRequest& request) {
  return {200, "application/octet-stream", request.method + " " + request.path + " " + request.body};
}

TEST_P(Http, RequestsReachTheHandlerWholeAndAnswersComeBackWhole) {
  const auto server = serve(echo);
  const auto client = client_of(*server);
  std::string body(90'000, '\0');
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * i);
  for (const auto& [method, sent] :
       {std::pair<std::string, std::string>{"GET", ""}, {"POST", body}, {"PUT", body}, {"PUT", ""}}) {
    const auto answer = client->send({method, "/a/path", sent}, patience);
    ASSERT_TRUE(answer.has_value()) << answer.error().message();
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->type, "application/octet-stream");
    EXPECT_TRUE(answer->body == method + " /a/path " + sent);
  }
}

TEST_P(Http, AnyStatusIsAnAnswer) {
  const auto server = serve([](const HttpRequest&) { return HttpAnswer{409, "text/plain", "no\n"}; });
  const auto answer = client_of(*server)->send({"POST", "/", "x"}, patience);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status, 409);
  EXPECT_EQ(answer->body, "no\n");
}

TEST_P(Http, ABodyThatIsTooLargeIsRefusedAndDoesNotReachTheHandler) {
  std::atomic<int> handled = 0;
  const auto server = serve([&](const HttpRequest& request) { return ++handled, echo(request); });
  const auto answer = client_of(*server)->send({"POST", "/", std::string(100'001, 'x')}, patience);
  ASSERT_TRUE(answer.has_value()) << answer.error().message();
  EXPECT_EQ(answer->status, 413);
  EXPECT_EQ(handled, 0);
}

TEST_P(Http, RequestsAreAnsweredAtTheSameTime) {
  constexpr int count = 40;
  std::latch all(count);  // each answer waits for all requests
  const auto server = serve([&](const HttpRequest& request) { return all.arrive_and_wait(), echo(request); });
  const auto client = client_of(*server);
  std::atomic<int> answered = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&] {
        const auto answer = client->send({"POST", "/", "x"}, patience);
        if (answer && answer->status == 200) ++answered;
      });
    }
  }
  EXPECT_EQ(answered, count);
}

TEST_P(Http, ATimeThatIsUpIsAnErrorOfItsOwn) {
  std::latch ended(1);
  const auto server = serve([&](const HttpRequest& request) { return ended.wait(), echo(request); });
  const auto answer = client_of(*server)->send({"GET", "/", ""}, 0.2);
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::timed_out);
  ended.count_down();
}

TEST_P(Http, NobodyThereIsAnErrorThatNamesTheAddress) {
  std::string address;
  {
    const auto server = serve(echo);
    address = server->address();
  }
  const auto answer = (*open_http_client(address, ""))->send({"GET", "/", ""}, patience);
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::io_error);
  EXPECT_EQ(answer.error().argument, address);
}

TEST_P(Http, ASecondServerAtAnAddressIsRefusedAndTheFirstGoesOn) {
  const auto first = serve(echo);
  ListenOptions same = options();
  same.address = first->address();
  const auto second = open_http_server(same, echo);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::io_error);
  EXPECT_TRUE(client_of(*first)->send({"GET", "/", ""}, patience).has_value());
}

INSTANTIATE_TEST_SUITE_P(Over, Http, ::testing::Bool(),
                         [](const auto& kind) { return kind.param ? "UnixSocket" : "Tcp"; });

TEST(UnixServer, ItsSocketIsForItsOwnerAndGoesWithIt) {
  const ScratchFolder folder;
  const std::string path = folder / "socket";
  struct stat found{};
  {
    const auto server = open_http_server({.address = "unix:" + path}, echo);
    ASSERT_TRUE(server.has_value()) << server.error().message();
    ASSERT_EQ(::lstat(path.c_str(), &found), 0);
    EXPECT_TRUE(S_ISSOCK(found.st_mode));
    EXPECT_EQ(found.st_mode & 0777, 0600U);
  }
  EXPECT_NE(::lstat(path.c_str(), &found), 0);
}

TEST(UnixServer, TakesTheSocketOfAServerThatDiedAndNoOtherFile) {
  const ScratchFolder folder;
  const std::string path = folder / "socket";
  const int dead = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.data(), path.size());
  ASSERT_EQ(::bind(dead, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  ::close(dead);
  EXPECT_TRUE(open_http_server({.address = "unix:" + path}, echo).has_value());
  std::ofstream(path) << "a file of the user's";
  EXPECT_FALSE(open_http_server({.address = "unix:" + path}, echo).has_value());
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
}

TEST(TcpServer, AsksForItsTokenBeforeItTakesABody) {
  std::atomic<int> handled = 0;
  const auto server = open_http_server({.address = "http://127.0.0.1:0", .token = "a secret"},
                                       [&](const HttpRequest& request) { return ++handled, echo(request); });
  ASSERT_TRUE(server.has_value()) << server.error().message();
  for (const char* token : {"", "a secre", "a secret ", "A secret"}) {
    const auto answer = (*open_http_client((*server)->address(), token))->send({"POST", "/", "x"}, patience);
    ASSERT_TRUE(answer.has_value()) << answer.error().message();
    EXPECT_EQ(answer->status, 401) << token;
  }
  EXPECT_EQ(handled, 0);
  EXPECT_EQ((*open_http_client((*server)->address(), "a secret"))->send({"POST", "/", "x"}, patience)->status, 200);
}

TEST(TcpServer, WithoutATokenIsRefused) {
  const auto server = open_http_server({.address = "http://127.0.0.1:0"}, echo);
  ASSERT_FALSE(server.has_value());
  EXPECT_EQ(server.error().argument, "token");
}

TEST(HttpClients, RefuseATokenOfSeveralLines) {
  const auto client = open_http_client("http://127.0.0.1:1", "a\r\nX-Other: b");
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().argument, "token");
}

}  // namespace
}  // namespace flashspan::network
