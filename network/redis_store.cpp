#include "network/redis_store.hpp"

#include <hiredis/hiredis.h>
#include <sys/time.h>

#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "network/address.hpp"
#include "network/ignore_sigpipe.hpp"

namespace flashspan::network {
namespace {

constexpr timeval connect_time_out{2, 0};
constexpr timeval command_time_out{5, 0};
constexpr std::string_view name_prefix = "flashspan:";

struct ContextDeleter {
  void operator()(redisContext* context) const { redisFree(context); }
};
using Context = std::unique_ptr<redisContext, ContextDeleter>;
struct ReplyDeleter {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, ReplyDeleter>;

class RedisStore final : public cache::BlobStore {
 public:
  explicit RedisStore(RedisAddress address) : address_(std::move(address)) {}

  [[nodiscard]] std::string address() const override { return address_.shown(); }

  [[nodiscard]] Result<std::optional<std::vector<std::byte>>> get(const std::string& name) override {
    const std::string whole = std::string(name_prefix) + name;
    const auto reply = with_connection({"GET", whole});
    if (!reply) return reply.error();
    if ((*reply)->type == REDIS_REPLY_NIL) return std::optional<std::vector<std::byte>>();
    if ((*reply)->type != REDIS_REPLY_STRING) return failure("another type of value under " + whole);
    const auto bytes = std::as_bytes(std::span((*reply)->str, (*reply)->len));
    return std::optional(std::vector<std::byte>(bytes.begin(), bytes.end()));
  }

  [[nodiscard]] Result<void> put(const std::string& name, std::span<const std::byte> bytes) override {
    const std::string whole = std::string(name_prefix) + name;
    const auto reply = with_connection({"SET", whole, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
    if (!reply) return reply.error();
    return {};
  }

 private:
  using Arguments = std::vector<std::string_view>;

  [[nodiscard]] Error failure(const std::string& got) const {
    return {ErrorCode::io_error, address(), got, "a Redis or Valkey server that answers", ""};
  }

  /// A connection that was idle may have been closed by the server: a second one is then tried.
  [[nodiscard]] Result<Reply> with_connection(const Arguments& arguments) {
    const IgnoreSigpipe ignored;
    if (Context idle = take_idle()) {
      if (auto reply = run(idle.get(), arguments)) {
        give_back(std::move(idle));
        return reply;
      }
    }
    auto fresh = connect();
    if (!fresh) return fresh.error();
    auto reply = run(fresh->get(), arguments);
    if (reply) give_back(*std::move(fresh));
    return reply;
  }

  [[nodiscard]] Result<Reply> run(redisContext* context, const Arguments& arguments) const {
    std::vector<const char*> texts;
    std::vector<std::size_t> lengths;
    for (const std::string_view argument : arguments) {
      texts.push_back(argument.data());
      lengths.push_back(argument.size());
    }
    Reply reply(static_cast<redisReply*>(
        redisCommandArgv(context, static_cast<int>(texts.size()), texts.data(), lengths.data())));
    if (reply == nullptr) return failure(context->errstr[0] != '\0' ? context->errstr : "no answer");
    if (reply->type == REDIS_REPLY_ERROR) return failure(std::string(reply->str, reply->len));
    return reply;
  }

  [[nodiscard]] Result<Context> connect() const {
    Context context(address_.socket.empty()
                        ? redisConnectWithTimeout(address_.host.c_str(), address_.port, connect_time_out)
                        : redisConnectUnixWithTimeout(address_.socket.c_str(), connect_time_out));
    if (context == nullptr) return failure("out of memory");
    if (context->err != 0) return failure(context->errstr);
    redisSetTimeout(context.get(), command_time_out);
    Arguments login{"AUTH"};
    if (!address_.user.empty()) login.emplace_back(address_.user);
    if (!address_.password.empty()) {
      login.emplace_back(address_.password);
      if (auto done = run(context.get(), login); !done) return done.error();
    }
    if (address_.database != 0) {
      const std::string number = std::to_string(address_.database);
      if (auto done = run(context.get(), {"SELECT", number}); !done) return done.error();
    }
    return context;
  }

  [[nodiscard]] Context take_idle() {
    const std::scoped_lock lock(mutex_);
    if (idle_.empty()) return nullptr;
    Context context = std::move(idle_.back());
    idle_.pop_back();
    return context;
  }
  void give_back(Context context) {
    const std::scoped_lock lock(mutex_);
    idle_.push_back(std::move(context));
  }

  RedisAddress address_;
  std::mutex mutex_;
  std::vector<Context> idle_;  // as many as there ever were commands at a time
};

}  // namespace

Result<std::unique_ptr<cache::BlobStore>> open_redis_store(const std::string& url) {
  auto address = parse_redis_address(url);
  if (!address) return address.error();
  return std::unique_ptr<cache::BlobStore>(std::make_unique<RedisStore>(*std::move(address)));
}

}  // namespace flashspan::network
