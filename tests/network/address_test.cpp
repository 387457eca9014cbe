// Which texts are addresses.
#include "network/address.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/shown_address.hpp"

namespace flashspan::network {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HttpAddresses, AreAUnixPathOrAHostWithAPort) {
  const auto socket = parse_http_address("service", "unix:/run/flashspan.sock");
  ASSERT_TRUE(socket.has_value()) << socket.error().message();
  EXPECT_EQ(socket->socket, "/run/flashspan.sock");
  EXPECT_EQ(socket->base(), "http://localhost:80");
  const auto host = parse_http_address("service", "http://farm.example:8080");
  ASSERT_TRUE(host.has_value());
  EXPECT_EQ(host->host, "farm.example");
  EXPECT_EQ(host->port, 8080);
  EXPECT_EQ(host->base(), "http://farm.example:8080");
  EXPECT_EQ(parse_http_address("store", "https://cache.example/a/b/")->base(), "https://cache.example:443/a/b");
  EXPECT_EQ(parse_http_address("store", "http://[::1]:9090/ac")->base(), "http://[::1]:9090/ac");
  EXPECT_EQ(parse_http_address("store", "http://[::1]")->host, "::1");
  const auto login = parse_http_address("store", "http://me:p@ss@host:90/ac");
  ASSERT_TRUE(login.has_value());
  EXPECT_EQ(login->login, "me:p@ss");
  EXPECT_EQ(login->shown(), "http://host:90/ac");
}

TEST(HttpAddresses, OfAnotherFormAreRefusedWithTheirArgument) {
  for (const char* text :
       {"", "/run/sock", "unix:relative", "http://", "http://:80", "http://host:port", "http://h:65536", "http://h:-1",
        "http://user@host", "http://u:\r\n@host", "http://h:80:80", "http://[::1", "http://[::1]80", "ftp://host",
        "http://host/a?b", "http://ho st", "http://host/a b", "http://h\r\nX: y"}) {
    const auto refused = parse_http_address("service", text);
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::bad_argument);
    EXPECT_EQ(refused.error().argument, "service");
  }
  EXPECT_FALSE(parse_http_address("service", "unix:/" + std::string(107, 'a')).has_value());
  EXPECT_TRUE(parse_http_address("service", "unix:/" + std::string(106, 'a')).has_value());
}

TEST(HttpAddresses, HaveTheirLoginWithoutEscapes) {
  const auto login_of = [](const std::string& login) {
    return parse_http_address("store", "http://" + login + "@host/ac")->login;
  };
  EXPECT_EQ(login_of("user:p%2Fq"), "user:p/q");
  EXPECT_EQ(login_of("us%40er:%3a%25%2f%20%c3%A9"), "us@er::%/ \xc3\xa9");
  EXPECT_EQ(login_of("user:"), "user:");
  EXPECT_EQ(parse_http_address("store", "http://host/a%2Fb")->base(), "http://host:80/a%2Fb")
      << "paths are sent as given";
}

TEST(HttpAddresses, WithALoginThatDoesNotReadAreRefusedAndTheLoginNotShown) {
  for (const char* login : {"me:secret%", "me:secret%2", "me:secret%zz", "me:secret%2g", "me:secret% 2", "me:secret%-1",
                            "m%e:secret", "m%3Ae:secret", "me:secret%00", "me:secret%0D%0AX"}) {
    const auto refused = parse_http_address("store", std::string("http://") + login + "@host/ac");
    ASSERT_FALSE(refused.has_value()) << login;
    EXPECT_EQ(refused.error().code, ErrorCode::bad_argument);
    EXPECT_EQ(refused.error().got, "http://...@host/ac");
    EXPECT_THAT(refused.error().message(), Not(HasSubstr("secret")));
  }
}

TEST(ShownAddresses, AreWholeButForWhatMayBeAPassword) {
  for (const char* text : {"", "http://host:80/ac", "unix:/run/flashspan.sock", "redis://host/0", "nonsense"}) {
    EXPECT_EQ(shown_address(text), text);
  }
  EXPECT_EQ(shown_address("http://me:secret@host:80/ac"), "http://...@host:80/ac");
  EXPECT_EQ(shown_address("redis://:sec/r@et@host"), "redis://...@host");
  EXPECT_EQ(shown_address("me:secret@host"), "...@host");
  EXPECT_EQ(shown_address("me:secret://more@host"), "...@host");
}

TEST(RedisAddresses, HaveUserAndPasswordWithoutEscapes) {
  const auto both = parse_redis_address("redis://m%3ae:p%2Fq%40%00@host/3");
  ASSERT_TRUE(both.has_value()) << both.error().message();
  EXPECT_EQ(both->user, "m:e");
  EXPECT_EQ(both->password, std::string("p/q@\0", 5));
  EXPECT_EQ(both->database, 3);
  const auto alone = parse_redis_address("redis://a%3Ab@host");
  ASSERT_TRUE(alone.has_value());
  EXPECT_EQ(alone->user, "");
  EXPECT_EQ(alone->password, "a:b");
  for (const char* login : {"secret%", "me:secret%4", "me:secret%x0", "m%e:secret"}) {
    const auto refused = parse_redis_address(std::string("redis://") + login + "@host");
    ASSERT_FALSE(refused.has_value()) << login;
    EXPECT_EQ(refused.error().code, ErrorCode::bad_argument);
    EXPECT_THAT(refused.error().message(), Not(HasSubstr("secret")));
  }
}

TEST(RedisAddresses, HaveUserPasswordAndDatabaseWhichMessagesDoNotShow) {
  const auto full = parse_redis_address("redis://me:pass:w@rd@host:7000/3");
  ASSERT_TRUE(full.has_value()) << full.error().message();
  EXPECT_EQ(full->user, "me");
  EXPECT_EQ(full->password, "pass:w@rd");
  EXPECT_EQ(full->host, "host");
  EXPECT_EQ(full->port, 7000);
  EXPECT_EQ(full->database, 3);
  EXPECT_EQ(full->shown(), "redis://host:7000/3");
  const auto bare = parse_redis_address("redis://host");
  ASSERT_TRUE(bare.has_value());
  EXPECT_EQ(bare->port, 6379);
  EXPECT_EQ(bare->password, "");
  EXPECT_EQ(parse_redis_address("redis://secret@host")->password, "secret");
  EXPECT_EQ(parse_redis_address("redis://:se:cret@host")->password, "se:cret") << "a password with a colon";
  EXPECT_EQ(parse_redis_address("redis+unix:///run/redis.sock")->socket, "/run/redis.sock");
  for (const char* text :
       {"redis://", "redis://h/x", "redis://h:x", "redis+unix://run", "rediss://h", "redis://h/-1"}) {
    const auto refused = parse_redis_address(text);
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::bad_argument);
  }
}

}  // namespace
}  // namespace flashspan::network
