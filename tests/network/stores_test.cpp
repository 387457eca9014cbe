// Stores of many machines: a Redis of its own, servers that answer as one should not, and HTTP servers that take PUT
// and GET.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "network/http_store.hpp"
#include "network/listening_socket.hpp"
#include "network/redis_store.hpp"
#include "tests/network/scratch_folder.hpp"

extern char** environ;

namespace flashspan::network {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Contents that no text protocol survives by chance.
std::vector<std::byte> binary(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

void expect_a_store(cache::BlobStore& store) {
  const auto absent = store.get("absent");
  ASSERT_TRUE(absent.has_value()) << absent.error().message();
  EXPECT_FALSE(absent->has_value());
  for (const auto& value : {bytes_of("a value"), std::vector<std::byte>(), binary(3 << 20), bytes_of("\r\n$5\r\n")}) {
    const auto put = store.put("name", value);
    ASSERT_TRUE(put.has_value()) << put.error().message();
    const auto found = store.get("name");
    ASSERT_TRUE(found.has_value()) << found.error().message();
    EXPECT_TRUE(**found == value);
  }
}

/// A redis-server on a Unix socket, and on no port.
class RedisServer {
 public:
  explicit RedisServer(const std::vector<std::string>& more = {}) { start(more); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;
  ~RedisServer() { stop(); }

  void start(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{
        FLASHSPAN_REDIS_SERVER, "--port", "0",     "--unixsocket", socket(),    "--save",       "",
        "--appendonly",         "no",     "--dir", folder_ / "",   "--logfile", folder_ / "log"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    ASSERT_EQ(posix_spawn(&process_, FLASHSPAN_REDIS_SERVER, nullptr, nullptr, pointers.data(), environ), 0);
    const auto store = open_redis_store(url());
    for (int i = 0; i < 1000; ++i) {
      const auto answer = (*store)->get("ready");
      if (answer || answer.error().got.starts_with("NOAUTH")) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "redis-server does not start";
  }
  void stop() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }
  [[nodiscard]] std::string socket() const { return folder_ / "redis.sock"; }
  [[nodiscard]] std::string url() const { return "redis+unix://" + socket(); }

 private:
  ScratchFolder folder_;
  pid_t process_ = 0;
};

class Redis : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string(FLASHSPAN_REDIS_SERVER).ends_with("NOTFOUND")) GTEST_SKIP() << "no redis-server here";
  }
};

TEST_F(Redis, KeepsWhatIsPut) {
  const RedisServer server;
  const auto store = open_redis_store(server.url());
  ASSERT_TRUE(store.has_value());
  expect_a_store(**store);
}

TEST_F(Redis, OverTcpWithUserPasswordAndDatabase) {
  const int port = 20000 + ::getpid() % 10000;  // not that of the same test in another process
  const RedisServer server({"--port", std::to_string(port), "--bind", "127.0.0.1", "--requirepass", "p/ss:w@rd"});
  const std::string place = "127.0.0.1:" + std::to_string(port);
  const auto store = open_redis_store("redis://default:p%2Fss:w@rd@" + place + "/3");
  ASSERT_TRUE(store.has_value());
  expect_a_store(**store);
  EXPECT_FALSE((*open_redis_store("redis://:p%2Fss:w%40rd@" + place + "/0"))->get("name")->has_value())
      << "another database";
  const auto wrong = (*open_redis_store("redis://wrong@" + place))->get("name");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code, ErrorCode::io_error);
  EXPECT_THAT(wrong.error().message(), ::testing::Not(HasSubstr("wrong@")));
}

TEST_F(Redis, AServerThatEndsIsAnErrorOfEveryCallAndNoSignal) {
  RedisServer server;
  const auto store = open_redis_store(server.url());
  ASSERT_TRUE((*store)->put("name", bytes_of("value")).has_value());
  server.stop();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ((*store)->put("name", binary(1 << 20)).error().code, ErrorCode::io_error);
    EXPECT_EQ((*store)->get("name").error().code, ErrorCode::io_error);
  }
  server.start({});
  ASSERT_TRUE((*store)->put("name", bytes_of("again")).has_value());
  EXPECT_EQ(**(*store)->get("name"), bytes_of("again"));
}

TEST_F(Redis, AServerWithoutRoomIsAnError) {
  const RedisServer server({"--maxmemory", "1mb", "--maxmemory-policy", "noeviction"});
  const auto full = (*open_redis_store(server.url()))->put("name", binary(8 << 20));
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code, ErrorCode::io_error);
}

/// What a server sends for its n-th command, which is the first for n = 0. It may take its time.
using Answers = std::function<void(int n, const std::function<void(const std::string&)>& send)>;

/// Takes connections one after another, and anything that looks like commands.
class SmallServer {
 public:
  explicit SmallServer(Answers answers) : answers_(std::move(answers)) {}
  SmallServer(const SmallServer&) = delete;
  SmallServer& operator=(const SmallServer&) = delete;
  ~SmallServer() {
    ::shutdown(socket_.descriptor(), SHUT_RDWR);  // ends accept()
    thread_.join();
  }
  /// host:port
  [[nodiscard]] std::string place() const { return socket_.address().substr(std::string("http://").size()); }
  [[nodiscard]] int connections() const { return connections_; }
  [[nodiscard]] int commands() const { return commands_; }

 private:
  void serve() {
    for (int connection = 0; (connection = ::accept(socket_.descriptor(), nullptr, nullptr)) >= 0;) {
      ++connections_;
      converse(connection);
      ::close(connection);
    }
  }
  /// Until the other side closes. Every command begins with a '*', and none here has another.
  void converse(int connection) {
    const auto send = [connection](const std::string& text) {
      (void)::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
    };
    std::array<char, 4096> part{};
    for (ssize_t count = 0; (count = ::recv(connection, part.data(), part.size(), 0)) > 0;) {
      const auto begun = std::count(part.begin(), part.begin() + count, '*');
      for (int i = 0; i < begun; ++i) answers_(commands_++, send);
    }
  }

  Answers answers_;
  ListeningSocket socket_ = *ListeningSocket::open({"", "http", "127.0.0.1", 0, "", ""});
  std::atomic<int> connections_ = 0, commands_ = 0;
  std::thread thread_{[this] { serve(); }};
};

TEST(RedisStores, TakeAnErrorOfTheServersForAnAnswerAndDoNotAskAgain) {
  const SmallServer server([](int n, const auto& send) { send(n == 0 ? "$-1\r\n" : "-ERR not today\r\n"); });
  const auto store = open_redis_store("redis://" + server.place());
  ASSERT_TRUE((*store)->get("name").has_value()) << "which leaves a connection that is idle";
  const auto refused = (*store)->put("name", bytes_of("value"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::io_error);
  EXPECT_EQ(refused.error().got, "ERR not today");
  EXPECT_EQ(server.commands(), 2);
  EXPECT_EQ(server.connections(), 1);
}

TEST(RedisStores, GiveUpAServerThatFallsSilentWithoutAskingItAgain) {
  const SmallServer server([](int n, const auto& send) {
    if (n == 0) send("$-1\r\n");
  });
  const auto store = open_redis_store("redis://" + server.place(), milliseconds(1000));
  ASSERT_TRUE((*store)->get("name").has_value()) << "which leaves a connection that is idle";
  const auto late = (*store)->get("name");
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, ErrorCode::io_error);
  EXPECT_EQ(late.error().got, "no answer in 1000 milliseconds");
  EXPECT_EQ(server.commands(), 2);
  EXPECT_EQ(server.connections(), 1) << "no time is left for a second";
}

TEST(RedisStores, GiveUpAServerThatNeverAnswersAtAll) {
  const SmallServer server([](int, const auto&) {});
  const auto store = open_redis_store("redis://" + server.place(), milliseconds(100));
  EXPECT_EQ((*store)->get("name").error().code, ErrorCode::io_error);
  EXPECT_EQ((*store)->put("name", bytes_of("value")).error().code, ErrorCode::io_error);
}

TEST(RedisStores, GiveLoginDatabaseAndCommandOneTimeTogether) {
  const SmallServer server([](int n, const auto& send) {
    std::this_thread::sleep_for(milliseconds(200));
    send(n < 2 ? "+OK\r\n" : "$-1\r\n");
  });
  const auto store = open_redis_store("redis://me:pass@" + server.place() + "/3", milliseconds(500));
  const auto late = (*store)->get("name");
  ASSERT_FALSE(late.has_value()) << "each answer by itself is in time";
  EXPECT_EQ(late.error().got, "no answer in 500 milliseconds");
}

TEST(RedisStores, GiveTheBytesOfAnAnswerOneTimeTogether) {
  const std::string value(20, 'x');
  const SmallServer server([&](int, const auto& send) {
    send("$20\r\n");
    for (const char byte : value + "\r\n") {
      std::this_thread::sleep_for(milliseconds(30));
      send(std::string(1, byte));
    }
  });
  const auto store = open_redis_store("redis://" + server.place(), milliseconds(300));
  const auto late = (*store)->get("name");
  ASSERT_FALSE(late.has_value()) << "each byte by itself is in time";
  EXPECT_EQ(late.error().got, "no answer in 300 milliseconds");
}

/// A server of Python's own, which shares no code with our client.
class PutGetServer {
 public:
  PutGetServer() {
    const std::string command = std::string("echo $$; exec ") + FLASHSPAN_PYTHON + " " + FLASHSPAN_PUT_GET_SERVER;
    output_ = ::popen(command.c_str(), "r");
    EXPECT_NE(output_, nullptr);
    EXPECT_EQ(std::fscanf(output_, "%d %d", &process_, &port_), 2);
  }
  PutGetServer(const PutGetServer&) = delete;
  PutGetServer& operator=(const PutGetServer&) = delete;
  ~PutGetServer() {
    ::kill(process_, SIGKILL);
    ::pclose(output_);
  }
  [[nodiscard]] std::string place() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  std::FILE* output_ = nullptr;
  int process_ = 0;
  int port_ = 0;
};

TEST(HttpStores, KeepWhatIsPutBehindTheirPathForThoseWhoMayLogIn) {
  const PutGetServer server;
  const auto store = open_http_store("http://me:p%2Fa@ss@" + server.place() + "/ac/");
  ASSERT_TRUE(store.has_value());
  EXPECT_EQ((*store)->address(), "http://" + server.place() + "/ac");
  expect_a_store(**store);
  const auto elsewhere = open_http_store("http://me:p%2Fa@ss@" + server.place() + "/cas");
  EXPECT_FALSE((*elsewhere)->get("name")->has_value()) << "another path";
  const auto stranger = (*open_http_store("http://" + server.place() + "/ac"))->get("name");
  ASSERT_FALSE(stranger.has_value());
  EXPECT_THAT(stranger.error().message(), HasSubstr("status 401"));
}

TEST(HttpStores, TakeHttpAddressesOnly) {
  for (const char* url : {"unix:/run/sock", "ftp://host", "", "http://"}) {
    const auto store = open_http_store(url);
    ASSERT_FALSE(store.has_value()) << url;
    EXPECT_EQ(store.error().argument, "shared store");
  }
}

TEST(HttpStores, NobodyThereIsAnError) {
  const auto store = open_http_store("http://127.0.0.1:1/ac");
  ASSERT_TRUE(store.has_value());
  EXPECT_EQ((*store)->get("name").error().code, ErrorCode::io_error);
  EXPECT_EQ((*store)->put("name", bytes_of("x")).error().code, ErrorCode::io_error);
}

}  // namespace
}  // namespace flashspan::network
